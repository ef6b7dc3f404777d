//! Forms of trace-cmd and perf that differ from the kernel's: system calls with named arguments, and `sched_switch`.

use super::fields::{add, value_of};
use crate::formats::parsed::{Parsed, Value};

/// `fd: 0x0000000a, buf: 0x097cf220, count: 0x000003ff` of a call, `0xca` of its return. Returns false for other text.
pub(super) fn call<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    if out.name.starts_with("sys_exit_") {
        let value = value_of(rest);
        let is_number = !matches!(value, Value::Text(_));
        if is_number {
            add(out, "ret", value);
        }
        return is_number;
    }
    let mut any = false;
    for part in rest.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
        let Some(colon) = part.windows(2).position(|w| w == b": ") else { continue };
        let name = std::str::from_utf8(&part[..colon]).ok();
        let is_name =
            |n: &&str| !n.is_empty() && n.len() <= 64 && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let Some(name) = name.filter(is_name) else { continue };
        add(out, name, value_of(part[colon + 2..].trim_ascii()));
        any = true;
    }
    any
}

/// `my prog:114 [120] R ==> rcu_preempt:15 [120]`. Returns false for other text.
pub(super) fn switch<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(arrow) = rest.windows(5).position(|w| w == b" ==> ") else { return false };
    let (Some(prev), Some(next)) = (task(&rest[..arrow]), task(&rest[arrow + 5..])) else { return false };
    add(out, "prev_comm", Value::Text(prev.0));
    add(out, "prev_pid", Value::Unsigned(prev.1));
    add(out, "prev_state", Value::Text(prev.2));
    add(out, "next_comm", Value::Text(next.0));
    add(out, "next_pid", Value::Unsigned(next.1));
    true
}

/// `COMM:TID [PRIORITY] STATE`
fn task(text: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let open = text.windows(2).rposition(|w| w == b" [")?;
    let close = open + text[open..].iter().position(|&b| b == b']')?;
    let colon = text[..open].iter().rposition(|&b| b == b':')?;
    match value_of(&text[colon + 1..open]) {
        Value::Unsigned(tid) => Some((text[..colon].trim_ascii(), tid, text[close + 1..].trim_ascii())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, rest: &'static str, f: fn(&mut Parsed<'static>, &'static [u8]) -> bool) -> Option<String> {
        let mut out = Parsed { name: name.to_string(), ..Parsed::default() };
        f(&mut out, rest.as_bytes()).then(|| {
            let show = |v: &Value<'_>| match v {
                Value::Text(t) => String::from_utf8_lossy(t).into_owned(),
                Value::Signed(n) => n.to_string(),
                Value::Unsigned(n) => n.to_string(),
            };
            out.fields.iter().map(|(k, v)| format!("{k}={}", show(v))).collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn calls_and_switches() {
        let enter = |rest| read("sys_enter_read", rest, call);
        assert_eq!(
            enter("fd: 0x0000000a, buf: 0x097cf220, count: 0x000003ff").as_deref(),
            Some("fd=10 buf=159183392 count=1023")
        );
        assert_eq!((enter(""), enter("fd, 3")), (None, None));
        assert_eq!(read("sys_exit_read", "0xca", call).as_deref(), Some("ret=202"));
        assert_eq!(read("sys_exit_read", "__syscall_nr=1 ret=0x1", call), None);
        assert_eq!(
            read("sched_switch", "a: b:114 [120] R+ ==> rcu:15 [120]", switch).as_deref(),
            Some("prev_comm=a: b prev_pid=114 prev_state=R+ next_comm=rcu next_pid=15")
        );
        assert_eq!(read("sched_switch", "prev_comm=a prev_pid=1 ==> next_comm=b", switch), None);
    }
}
