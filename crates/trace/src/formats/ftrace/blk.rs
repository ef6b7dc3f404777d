//! Steps of the block layer in the form of blktrace's tools: `8,0 Q WS 1234 + 8 [cat]`. The kernel's `blk` tracer prints them after its
//! usual head, blkparse after its own.
//!
//! Sources: `kernel/trace/blktrace.c` (`what2act`, `blk_log_*`; Linux 6.1) and the output of blkparse 1.2.

use super::fields::{device, value_of, words};
use crate::formats::parsed::{Parsed, Value};

/// The kernel's event name for a step's letter.
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
        // Steps without a kernel event: a zone's delayed writes, and a driver's data.
        b"ZP" => "block_zone_plug",
        b"ZU" => "block_zone_unplug",
        _ => return None,
    })
}

/// Parses the text after the head in the `blk` tracer's output: `7,4    Q  RM 15942 + 2 [dd]`.
pub(super) fn line(text: &[u8]) -> Option<Parsed<'_>> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    let end = text.iter().position(|&b| b == b' ')?;
    let dev = &text[..end];
    device(dev)?;
    let mut rest = text[end..].trim_ascii_start();
    // With the options blk_cgroup and blk_cgname, a control group comes before the step.
    if rest.first().is_some_and(|b| *b == b'/' || b.is_ascii_hexdigit() && rest.contains(&b',')) {
        let end = rest.iter().position(|&b| b == b' ')?;
        let is_group = rest[0] == b'/' || rest[..end].iter().all(|b| b.is_ascii_hexdigit() || *b == b',');
        if is_group && name(&rest[..end]).is_none() {
            rest = rest[end..].trim_ascii_start();
        }
    }
    let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    event(dev, &rest[..end], &rest[end..])
}

/// Parses one step: its device, its letters, and the text after them. `None` if it is not a step, is cut, or has another form than the
/// kernel's and blkparse's own.
pub(crate) fn event<'a>(dev: &'a [u8], action: &[u8], rest: &'a [u8]) -> Option<Parsed<'a>> {
    let dev = device(dev)?;
    let rest = rest.trim_ascii();
    if action == b"m" {
        // A message of a scheduler or of a control group, after an N.
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
    match action {
        // A plug has no sectors; an unplug has the number of requests that leave it.
        b"P" | b"U" | b"UT" => {
            out.fields.extend(number(words(behind).next().as_ref()).map(|n| ("nr_rq", Value::Unsigned(n))));
        }
        b"A" => {
            let from = all.get(5).and_then(|w| device(w.strip_prefix(b"(")?.strip_suffix(b")")?));
            let (Some(&b"<-"), Some(dev), Some(sector)) = (all.get(4), from, number(all.get(6))) else { return None };
            out.fields.extend(range(&all[1..], action)?);
            out.fields.push(("old_dev", Value::Unsigned(dev)));
            out.fields.push(("old_sector", Value::Unsigned(sector)));
            return Some(out);
        }
        _ => {
            out.fields.extend(range(&all[1..], action)?);
            out.fields.extend(command(&all[1..], before, action).map(|text| ("cmd", Value::Text(text))));
        }
    }
    let inside = in_brackets?;
    if !matches!(action, b"C" | b"R") {
        out.fields.push(("comm", Value::Text(inside)));
        return Some(out);
    }
    // blkparse prints the error as blktrace's 16 bits.
    out.fields.push(match value_of(inside) {
        Value::Unsigned(n @ 0..=0xffff) => ("error", Value::Signed(i64::from(n as u16 as i16))),
        Value::Signed(n) => ("error", Value::Signed(n)),
        _ => return None,
    });
    Some(out)
}

/// The range of a step: `2208 + 8`, `100 / 200` of a split, `0` of a completed flush, nothing for an issued flush. For a driver's own
/// command: its bytes, and the command in round brackets (`36 (12 00 …)`). `-t` adds times in round brackets.
fn range<'a>(words: &[&'a [u8]], action: &[u8]) -> Option<Vec<(&'static str, Value<'a>)>> {
    let number = |at: usize| match words.get(at).map(|w| value_of(w)) {
        Some(Value::Unsigned(n)) => Some(Value::Unsigned(n)),
        _ => None,
    };
    let rest_is_round = |from: usize| words.get(from).is_none_or(|w| w.starts_with(b"("));
    let zero = Value::Unsigned(0);
    Some(match words.get(1) {
        Some(&b"/") if action == b"X" => vec![("sector", number(0)?), ("new_sector", number(2)?)],
        Some(&b"+") if action != b"X" && (action == b"A" || rest_is_round(3)) => {
            vec![("sector", number(0)?), ("nr_sector", number(2)?)]
        }
        _ if rest_is_round(0) => vec![("sector", zero), ("nr_sector", zero)],
        // The sector of a completion without data; before completion, the bytes of a command.
        _ if rest_is_round(1) && matches!(action, b"C" | b"R") => vec![("sector", number(0)?), ("nr_sector", zero)],
        _ if rest_is_round(1) => vec![("sector", zero), ("nr_sector", zero), ("bytes", number(0)?)],
        _ => return None,
    })
}

/// A driver's own command: its bytes in hexadecimal, in round brackets. Newer kernels do not give them to blktrace: then only the form is
/// left, a size without sectors, or a completion without a place. A flush has the second form too.
fn command<'a>(words: &[&[u8]], before: &'a [u8], action: &[u8]) -> Option<&'a [u8]> {
    let open = before.iter().position(|&b| b == b'(');
    let inside =
        open.and_then(|open| Some(&before[open + 1..open + 1 + before[open..].iter().position(|&b| b == b')')? - 1]));
    // `-t` adds a number there.
    let is_time = |text: &[u8]| text.trim_ascii().iter().all(u8::is_ascii_digit);
    if let Some(inside) = inside.filter(|inside| !is_time(inside)) {
        return Some(inside);
    }
    let alone = words.first().is_some_and(|w| w.iter().all(u8::is_ascii_digit)) && words.get(1) != Some(&&b"+"[..]);
    let is_flush = before.first() == Some(&b'F');
    let is_one = match action {
        b"I" | b"D" => alone,
        b"C" => words.is_empty() || words[0].starts_with(b"("),
        _ => false,
    };
    (is_one && !is_flush).then_some(b"unknown")
}

/// The text before, in and after the first bracket: a name may have brackets of its own.
fn bracket(text: &[u8]) -> (&[u8], Option<&[u8]>, &[u8]) {
    let open = text.windows(2).position(|w| w == b" [").map(|at| at + 1);
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
    fn a_drivers_command_is_one_whatever_its_letter() {
        let command = |action: &str, rest: &str| {
            let parsed = event(b"8,0", action.as_bytes(), rest.as_bytes()).expect("a step");
            parsed.fields.iter().find(|(key, _)| *key == "cmd").map(|(_, value)| format!("{value:?}"))
        };
        for (action, rest, is) in [
            ("D", "R 36 (12 00 00 00 24 00 ..) [smartctl]", true),
            ("C", "R (12 00 00 00 24 00 ..) [0]", true),
            ("D", "W 512 [hdparm]", true),
            ("C", "W [0]", true),
            ("D", "R 100 + 8 [x]", false),
            // With -t.
            ("D", "R 100 + 8 (       4) [x]", false),
            ("C", "R 100 + 8 (     300) [0]", false),
            ("D", "FN [kworker/0:1H]", false),
            ("C", "FN 0 [0]", false),
            ("C", "WS 0 [0]", false),
            ("Q", "FWS [jbd2/sda1-8]", false),
        ] {
            assert_eq!(command(action, rest).is_some(), is, "{action} {rest}");
        }
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
                "block_rq_issue dev=8388608u rwbs='R' sector=0u nr_sector=0u bytes=36u cmd='12 00 00 00 24 00' comm='udevd'",
            ),
            (
                "8,0    C   R (12 00) [0]",
                "block_rq_complete dev=8388608u rwbs='R' sector=0u nr_sector=0u cmd='12 00' error=0",
            ),
            (
                "8,0    D   R 96 + 8 [a [b] c]",
                "block_rq_issue dev=8388608u rwbs='R' sector=96u nr_sector=8u comm='a [b] c'",
            ),
            ("8,0    D   R 96 + 8 [[x]]", "block_rq_issue dev=8388608u rwbs='R' sector=96u nr_sector=8u comm='[x]'"),
            // With the options blk_cgroup and blk_cgname.
            ("8,0 1,62    Q   R 96 + 8 [a]", "block_bio_queue dev=8388608u rwbs='R' sector=96u nr_sector=8u comm='a'"),
            (
                "8,0 /system.slice    Q   R 96 + 8 [a]",
                "block_bio_queue dev=8388608u rwbs='R' sector=96u nr_sector=8u comm='a'",
            ),
            // Cut, or with the columns of blkparse -f.
            ("8,0    Q   R 96 + 8", "none"),
            ("8,0    Q   R 96 + 8 [a", "none"),
            ("8,0    Q   R", "none"),
            ("8,0    Q   R 96 8 [a]", "none"),
            ("8,0    C   R 96 + 8 [swapper/0]", "none"),
            ("8,0    A   R 96 + 8 [a]", "none"),
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
