//! ftrace's text: real ones, damaged ones, and the same trace as trace-cmd prints it.

use crate::common::*;
use flashscope_trace::{BlockAction, EventKind, Loss, Missed, TaskId, Trace, TraceKind, Value};
use std::collections::BTreeMap;

fn open(name: &str) -> Trace {
    Trace::open(&data(&format!("ftrace/{name}.txt"))).unwrap()
}

/// Kinds of events and how many.
fn kinds(trace: &Trace) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    trace
        .for_each_record(&mut |r| *kinds.entry(format!("{}:{}", r.schema.system, r.schema.name)).or_default() += 1)
        .unwrap();
    kinds
}

fn lost(trace: &Trace) -> Vec<(Loss, u64)> {
    trace.losses().iter().filter(|&(_, n)| n > 0).collect()
}

#[test]
fn events_with_their_fields() {
    let trace = open("events");
    assert_eq!(trace.kind(), TraceKind::FtraceText);
    assert_eq!(trace.facts_json()["ftrace_text"]["best_effort"], true);
    assert_eq!(lost(&trace), []);
    // grep -c counts them: 283 lines that are no comment.
    let want = [
        ("ftrace:print", 1),
        ("raw_syscalls:sys_enter", 259),
        ("sched:sched_process_exec", 3),
        ("sched:sched_switch", 20),
    ];
    let kinds = kinds(&trace);
    assert_eq!(kinds.values().sum::<u64>(), 283);
    assert_eq!(kinds, want.iter().map(|(k, n)| (k.to_string(), *n)).collect());
    let mut first = true;
    trace
        .for_each_record(&mut |r| {
            let text = |name| match r.get(name) {
                Some(Value::Text(t)) => String::from_utf8_lossy(t).into_owned(),
                other => panic!("{name}: {other:?}"),
            };
            if std::mem::take(&mut first) {
                assert_eq!((r.time.0, r.cpu, r.tid().0), (3_280_203_000, 0, 77));
                assert_eq!(
                    (text("flags"), text("prev_comm"), text("prev_state")),
                    ("d....".into(), "busybox".into(), "R+".into())
                );
                assert_eq!(r.get("next_pid"), Some(Value::Unsigned(15)));
                assert_eq!(text("next_comm"), "migration/0");
            }
            match r.schema.name.as_str() {
                "print" => assert_eq!(text("buf"), "a mark: key=1 two"),
                "sched_process_exec" => assert_eq!(text("filename"), "/usr/bin/busybox"),
                "sys_enter" => {
                    assert!(matches!(r.get("id"), Some(Value::Unsigned(_))) && text("args").starts_with('('))
                }
                _ => assert!(text("text").starts_with("sched_switch: prev_comm=")),
            }
        })
        .unwrap();
    let all = events(&trace);
    assert_eq!(trace.comm(TaskId(14), all[0].time), Some("rcu_sched"));
}

#[test]
fn losses_are_counted_where_the_text_says_them() {
    let trace = open("overrun-tgid");
    assert_eq!(lost(&trace), [(Loss::EventsOverwritten, 479 - 208)]);
    assert_eq!(kinds(&trace).values().sum::<u64>(), 28);
    let trace = open("pipe");
    assert_eq!(lost(&trace), [(Loss::EventsMissedAtGaps, 271)]);
    let mut missed = vec![];
    trace.for_each_record(&mut |r| missed.push(r.missed)).unwrap();
    assert_eq!(missed.len(), 11);
    assert_eq!(missed[0], Missed::Events(271));
    assert!(missed[1..].iter().all(|m| *m == Missed::Nothing));
}

#[test]
fn functions_and_graphs() {
    let trace = open("function");
    assert_eq!(lost(&trace), []);
    assert_eq!(kinds(&trace), BTreeMap::from([("ftrace:function".to_string(), 14)]));

    let (plain, timed) = (open("graph"), open("graph-abstime"));
    let steps = |trace: &Trace| {
        let mut out = vec![];
        trace
            .for_each_record(&mut |r| {
                let func = r.get("func").map(|f| match f {
                    Value::Text(t) => String::from_utf8_lossy(t).into_owned(),
                    _ => panic!(),
                });
                out.push((
                    r.schema.name.clone(),
                    func,
                    r.get("depth").map(|d| format!("{d:?}")),
                    r.get("duration_ns").map(|d| format!("{d:?}")),
                ));
            })
            .unwrap();
        out
    };
    // The same run, printed twice.
    let (a, b) = (steps(&plain), steps(&timed));
    assert_eq!(a.len(), 56);
    assert_eq!(a, b);
    assert_eq!(a[0].1.as_deref(), Some("ksys_read"));
    assert_eq!(
        a[2],
        (
            "funcgraph_entry".into(),
            Some("__fget_light".into()),
            Some("Unsigned(2)".into()),
            Some("Unsigned(2656)".into())
        )
    );
    assert_eq!(lost(&plain), [(Loss::TimesMissing, 56)]);
    assert!(plain.facts_json()["ftrace_text"]["times"].as_str().unwrap().starts_with("none"));
    assert_eq!(lost(&timed), []);
    let first = &events(&timed)[0];
    assert_eq!((first.time.0, first.tid.0), (4_118_508_000, 83));
    assert_eq!(timed.comm(TaskId(83), first.time), Some("busybox"));
}

/// `trace-cmd report` prints the binary traces: the text gives the same events, tasks, CPUs, times (to the microsecond)
/// and values.
#[test]
fn the_same_trace_in_binary_and_as_text() {
    let dir = TempDir::new("ftrace-text");
    for name in ["armv7-6.1-v6", "armv7-6.1-v7-none"] {
        let binary = data(&format!("trace_dat/{name}.dat"));
        let Some(printed) = report::trace_cmd(&["-i"], &binary) else { return };
        let text = Trace::open(&dir.file(name, printed.as_bytes())).unwrap();
        assert_eq!(text.kind(), TraceKind::FtraceText);
        assert_eq!(lost(&text), [], "{name}");
        let binary = Trace::open(&binary).unwrap();
        let (mut want, mut got) = (vec![], vec![]);
        let mut blocks = 0;
        binary
            .for_each_pair(&mut |p| {
                let r = p.record.unwrap();
                let block = match p.event.map(|e| &e.kind) {
                    Some(EventKind::Block(b)) if !matches!(b.action, BlockAction::Plug | BlockAction::Unplug) => {
                        blocks += 1;
                        format!("{} {} {} {} {}", b.action.name(), b.device, b.sector, b.flags, b.error)
                    }
                    _ => String::new(),
                };
                want.push((r.schema.name.clone(), r.tid(), r.cpu, (r.time.0 + 500) / 1000, block));
            })
            .unwrap();
        text.for_each_pair(&mut |p| {
            let r = p.record.unwrap();
            let block = match p.event.map(|e| &e.kind) {
                Some(EventKind::Block(b)) if !matches!(b.action, BlockAction::Plug | BlockAction::Unplug) => {
                    format!("{} {} {} {} {}", b.action.name(), b.device, b.sector, b.flags, b.error)
                }
                _ => String::new(),
            };
            got.push((r.schema.name.clone(), r.tid(), r.cpu, r.time.0 / 1000, block));
        })
        .unwrap();
        for (w, g) in want.iter().zip(&got) {
            assert_eq!(w, g, "{name}");
        }
        assert_eq!(want.len(), got.len());
        println!("{name}: {} events, {blocks} of them block I/O", want.len());
    }
}

#[test]
fn any_bytes_give_an_answer() {
    let dir = TempDir::new("ftrace-bytes");
    let mut rng = Rng(11);
    for name in ["events", "pipe", "graph-abstime", "overrun-tgid"] {
        let whole = std::fs::read(data(&format!("ftrace/{name}.txt"))).unwrap();
        let whole = &whole[..whole.len().min(3000)];
        for round in 0..300 {
            let mut bytes = whole[..rng.below(whole.len()) + 1].to_vec();
            if round % 2 == 0 {
                for _ in 0..1 + rng.below(20) {
                    let at = rng.below(bytes.len());
                    bytes[at] = rng.next() as u8;
                }
            }
            // Other formats may see their own in it; an error is an answer too.
            let Ok(trace) = Trace::from_bytes(&dir.0, bytes.into()) else { continue };
            let (mut records, mut with_event) = (0, 0);
            trace.for_each_record(&mut |_| records += 1).unwrap();
            trace
                .for_each_pair(&mut |p| {
                    assert!(p.record.is_some());
                    with_event += 1;
                })
                .unwrap();
            assert_eq!(records, with_event);
        }
    }
    let long = [
        b"         a-1      [000] ..... 1.0: x: y=1\n".to_vec(),
        vec![b'z'; 100_000],
        b"\n         a-1      [000] ..... 2.0: x: y=2\n".to_vec(),
    ];
    let trace = Trace::from_bytes(&dir.0, long.concat().into()).unwrap();
    assert_eq!(lost(&trace), [(Loss::LinesMalformed, 1)]);
    assert_eq!(kinds(&trace), BTreeMap::from([("text:x".to_string(), 2)]));
    let latency = b"# tracer: irqsoff\n#\n# irqsoff latency trace v1.1.5 on 6.1.0\n".to_vec();
    let error = Trace::from_bytes(&dir.0, latency.into()).unwrap_err().to_string();
    assert!(error.contains("latency tracer"), "{error}");
}
