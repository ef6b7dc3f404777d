//! Steps of the block layer as blktrace's tools print them: `8,0 Q WS 1234 + 8 [cat]`. The kernel's `blk` tracer prints
//! them behind its usual head, blkparse behind one of its own.
//!
//! Sources: `kernel/trace/blktrace.c` (`what2act`, `blk_log_*`; Linux 6.1) and the output of blkparse 1.2.

use super::fields::{device, value_of, words};
use crate::formats::made::{Parsed, Value};

/// The kernel's name of the step that a letter stands for.
fn name(action: &[u8]) -> Option<&'static str> {
    Some(match action {
        b"Q" => "block_bio_queue",
        b"M" => "block_bio_backmerge",
        b"F" => "block_bio_frontmerge",
        b"G" => "block_getrq",
        b"S" => "block_sleeprq",
        b"R" => "block_rq_requeue",
        b"D" => "block_rq_issue",
        b"C" => "block_rq_complete",
        b"P" => "block_plug",
        b"U" => "block_unplug",
        b"UT" => "block_unplug_timer",
        b"I" => "block_rq_insert",
        b"X" => "block_split",
        b"B" => "block_bio_bounce",
        b"A" => "block_bio_remap",
        // Steps that have no event of their own: a zone's writes held back, a driver's own.
        b"ZP" => "block_zone_plug",
        b"ZU" => "block_zone_unplug",
        _ => return None,
    })
}

/// What stands behind the head in the `blk` tracer's text: `7,4    Q  RM 15942 + 2 [dd]`.
pub(super) fn line(text: &[u8]) -> Option<Parsed<'_>> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    let end = text.iter().position(|&b| b == b' ')?;
    device(&text[..end])?;
    let rest = text[end..].trim_ascii_start();
    let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    event(&text[..text.iter().position(|&b| b == b' ')?], &rest[..end], &rest[end..])
}

/// One step: its device, its letters, and what stands behind them. `None`: it is no step.
pub(crate) fn event<'a>(dev: &'a [u8], action: &[u8], rest: &'a [u8]) -> Option<Parsed<'a>> {
    let dev = device(dev)?;
    let rest = rest.trim_ascii();
    if action == b"m" {
        // A message of a scheduler or of a control group, behind an N.
        let text = rest.strip_prefix(b"N ").unwrap_or(rest).trim_ascii();
        return Some(Parsed { system: "ftrace", name: "print".into(), fields: vec![("buf", Value::Text(text))] });
    }
    let mut out =
        Parsed { system: "block", name: name(action)?.to_string(), fields: vec![("dev", Value::Unsigned(dev))] };
    let (before, in_brackets, behind) = bracket(rest);
    let all: Vec<&[u8]> = words(before).take(32).collect();
    let number = |word: Option<&&'a [u8]>| match word.map(|w| value_of(w)) {
        Some(Value::Unsigned(n)) => Some(n),
        _ => None,
    };
    out.fields.push(("rwbs", Value::Text(all.first()?)));
    if matches!(action, b"P" | b"U" | b"UT") {
        // A plug has no place; one that ends says how many requests leave it.
        out.fields.extend(number(words(behind).next().as_ref()).map(|n| ("nr_rq", Value::Unsigned(n))));
    } else {
        out.fields.push(("sector", Value::Unsigned(number(all.get(1)).unwrap_or(0))));
        match (all.get(2), number(all.get(3))) {
            (Some(&b"+"), Some(sectors)) => out.fields.push(("nr_sector", Value::Unsigned(sectors))),
            (Some(&b"/"), Some(sector)) => out.fields.push(("new_sector", Value::Unsigned(sector))),
            // A command of its own kind: its bytes, then itself in brackets. A flush has neither.
            _ => out.fields.push(("nr_sector", Value::Unsigned(0))),
        }
        if action == b"A" {
            let from = all.get(5).and_then(|w| device(w.strip_prefix(b"(")?.strip_suffix(b")")?));
            if let (Some(&b"<-"), Some(dev), Some(sector)) = (all.get(4), from, number(all.get(6))) {
                out.fields.push(("old_dev", Value::Unsigned(dev)));
                out.fields.push(("old_sector", Value::Unsigned(sector)));
            }
        }
    }
    match in_brackets {
        // blkparse prints the error as the 16 bits that blktrace has.
        Some(text) if action == b"C" => match value_of(text) {
            Value::Unsigned(n @ 0..=0xffff) => out.fields.push(("error", Value::Signed(i64::from(n as u16 as i16)))),
            value => out.fields.push(("error", value)),
        },
        Some(text) => out.fields.push(("comm", Value::Text(text))),
        None => {}
    }
    Some(out)
}

/// What stands before the last bracket, in it and behind it.
fn bracket(text: &[u8]) -> (&[u8], Option<&[u8]>, &[u8]) {
    let open =
        text.windows(2).rposition(|w| w == b" [").map(|at| at + 1).or((text.first() == Some(&b'[')).then_some(0));
    let close = text.iter().rposition(|&b| b == b']');
    match (open, close) {
        (Some(open), Some(close)) if open < close => (&text[..open], Some(&text[open + 1..close]), &text[close + 1..]),
        _ => (text, None, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let Some(p) = line(text.as_bytes()) else { return "none".to_string() };
        let fields = p.fields.iter().map(|(k, v)| match v {
            Value::Signed(n) => format!(" {k}={n}"),
            Value::Unsigned(n) => format!(" {k}={n}u"),
            Value::Text(t) => format!(" {k}='{}'", t.escape_ascii()),
        });
        format!("{}{}", p.name, fields.collect::<String>())
    }

    #[test]
    fn steps_of_all_letters() {
        for (text, want) in [
            (
                "7,4    Q  RM 15942 + 2 [dd]",
                "block_bio_queue dev=7340036u rwbs='RM' sector=15942u nr_sector=2u comm='dd'",
            ),
            ("7,4    P   N [dd]", "block_plug dev=7340036u rwbs='N' comm='dd'"),
            ("7,4    U   N [my dd] 3", "block_unplug dev=7340036u rwbs='N' nr_rq=3u comm='my dd'"),
            ("8,0   UT   N [swapper/0] 1", "block_unplug_timer dev=8388608u rwbs='N' nr_rq=1u comm='swapper/0'"),
            (
                "8,0    C  WS 274432 + 8 [0]",
                "block_rq_complete dev=8388608u rwbs='WS' sector=274432u nr_sector=8u error=0",
            ),
            ("8,0    C   R 96 + 8 [65531]", "block_rq_complete dev=8388608u rwbs='R' sector=96u nr_sector=8u error=-5"),
            ("8,0    C   R 96 + 8 [-5]", "block_rq_complete dev=8388608u rwbs='R' sector=96u nr_sector=8u error=-5"),
            // Elapsed time, with blkparse -t.
            (
                "8,0    C   R 96 + 8 (  110951) [0]",
                "block_rq_complete dev=8388608u rwbs='R' sector=96u nr_sector=8u error=0",
            ),
            (
                "8,0    D  FN [kworker/0:1H]",
                "block_rq_issue dev=8388608u rwbs='FN' sector=0u nr_sector=0u comm='kworker/0:1H'",
            ),
            ("8,0    C  FN 0 [0]", "block_rq_complete dev=8388608u rwbs='FN' sector=0u nr_sector=0u error=0"),
            (
                "8,0    A   R 2144 + 8 <- (8,1) 96",
                "block_bio_remap dev=8388608u rwbs='R' sector=2144u nr_sector=8u old_dev=8388609u old_sector=96u",
            ),
            ("8,0    X   W 100 / 200 [a]", "block_split dev=8388608u rwbs='W' sector=100u new_sector=200u comm='a'"),
            ("8,0    m   N cfq workload slice:300", "print buf='cfq workload slice:300'"),
            (
                "8,0    D   R 36 (12 00 00 00 24 00) [udevd]",
                "block_rq_issue dev=8388608u rwbs='R' sector=36u nr_sector=0u comm='udevd'",
            ),
            ("8,0    Y   R 36 + 8 [x]", "none"),
            ("8,0", "none"),
            ("8,0 Q", "none"),
            ("x,0 Q R 1 + 8 [x]", "none"),
            ("", "none"),
        ] {
            assert_eq!(show(text), want, "{text}");
        }
    }
}
