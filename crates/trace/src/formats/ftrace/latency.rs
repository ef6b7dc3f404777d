//! Lines with the flags right behind the CPU's number: the kernel's option latency-format, and `trace-cmd report -l`.
//!
//! Source: `kernel/trace/trace_output.c` (`trace_print_lat_context`, `lat_print_generic`, `lat_print_timestamp`; Linux 6.1).
//! The kernel's times count microseconds from the moment the buffer was emptied, trace-cmd's are the trace's own.

use super::line::{Head, number, task, time};

/// `COMM-TID  CPUFLAGS TIMEus: ` or `COMM-TID  CPUFLAGS SECONDS.FRACTION: `, and the rest. A name may hold all of that: the
/// first place where everything fits is taken.
pub(super) fn head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let dashes = line.iter().enumerate().filter(|&(_, &b)| b == b'-').map(|(at, _)| at);
    dashes.take(16).find_map(|dash| head_at(line, dash))
}

fn head_at(line: &[u8], dash: usize) -> Option<(Head<'_>, &[u8])> {
    let behind = &line[dash + 1..];
    let end = behind.iter().position(|&b| b == b' ')?;
    let (tid, comm) = task(&line[..dash + 1 + end])?;
    let (cpu, rest) = number(behind[end..].trim_ascii_start())?;
    let space = rest.iter().position(|&b| b == b' ')?;
    let (flags, rest) = (&rest[..space], rest[space..].trim_ascii_start());
    let is_flag = |b: &u8| matches!(b, b'.' | b'#' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
    if !(4..=8).contains(&flags.len()) || !flags.iter().all(is_flag) {
        return None;
    }
    let colon = rest.iter().position(|&b| b == b':')?;
    let time_ns = time(&rest[..colon]).or_else(|| microseconds(&rest[..colon]))?;
    let head = Head { comm, tid, tgid: None, cpu: u16::try_from(cpu).ok()?, flags, time_ns };
    Some((head, rest[colon + 1..].trim_ascii()))
}

/// `1734314933us+`: the mark behind it says how long the next event took to come.
fn microseconds(text: &[u8]) -> Option<u64> {
    let (us, rest) = number(text.trim_ascii())?;
    let mark = rest.strip_prefix(b"us")?.trim_ascii();
    matches!(mark, b"" | b"+" | b"!" | b"#" | b"*" | b"@" | b"$" | b"&").then(|| us.checked_mul(1000))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_and_of_trace_cmd() {
        for (line, comm, tid, cpu, flags, time_ns, rest) in [
            (
                "ksoftirq-22        1..s.. 1734314926us : block_rq_complete: x",
                "ksoftirq",
                22,
                1,
                "..s..",
                1_734_314_926_000,
                "block_rq_complete: x",
            ),
            ("flashsco-16370     1..s.. 1734315099us+: e: y", "flashsco", 16370, 1, "..s..", 1_734_315_099_000, "e: y"),
            ("kworker/-10979    12d..1.   15us!: e: y", "kworker/", 10979, 12, "d..1.", 15_000, "e: y"),
            (
                "      dd-110     0d.h1.    10.654895: block_rq_complete:    254,0 RM () 2316 + 2 [0]",
                "dd",
                110,
                0,
                "d.h1.",
                10_654_895_000,
                "block_rq_complete:    254,0 RM () 2316 + 2 [0]",
            ),
            ("    sh-x-109     0...1.    10.638306963: e: 0x1", "sh-x", 109, 0, "...1.", 10_638_306_963, "e: 0x1"),
        ] {
            let (h, got) = head(line.as_bytes()).expect(line);
            assert_eq!(
                (h.comm, h.tid, h.cpu, h.flags, h.time_ns),
                (comm.as_bytes(), tid, cpu, flags.as_bytes(), time_ns),
                "{line}"
            );
            assert_eq!(got, rest.as_bytes(), "{line}");
        }
        for line in ["a-1 0..s.. 12ms : x", "a-1 0 12us : x", "a-b 0..s.. 12us : x", "-", "a-1 0..s.. 12us"] {
            assert_eq!(head(line.as_bytes()), None, "{line}");
        }
    }
}
