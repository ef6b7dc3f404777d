//! Exports say what the trace says.

use crate::common::*;
use flashscope_trace::{Session, Trace, Value, export};

#[test]
fn json_lines_have_every_record_and_field() {
    for name in ["armv7-6.1-v6", "armv7-7.2-v7-subbuf16k"] {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).unwrap();
        let mut out = vec![];
        let lines = export::json_lines(&trace, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut parsed = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        let mut count = 0;
        trace
            .for_each_record(&mut |r| {
                count += 1;
                let json = parsed.next().unwrap();
                assert_eq!(json["time_ns"], r.time.0);
                assert_eq!(json["cpu"], r.cpu);
                assert_eq!(json["tid"], r.tid().0);
                assert_eq!(json["comm"].as_str(), trace.comm(r.tid(), r.time));
                assert_eq!(json["event"], r.schema.name.as_str());
                assert_eq!(json["buffer"], r.buffer);
                let fields = json["fields"].as_object().unwrap();
                let mut n = 0;
                for (field, value) in r.fields().filter(|(f, _)| !f.common) {
                    n += 1;
                    let json = &fields[&field.name];
                    match value.unwrap() {
                        Value::Unsigned(v) => assert_eq!(json, v),
                        Value::Signed(v) => assert_eq!(json, v),
                        Value::Text(t) => assert_eq!(json.as_str().unwrap(), String::from_utf8_lossy(t)),
                        Value::Array(a) => assert_eq!(json.as_array().unwrap().len(), a.len()),
                        Value::Bytes(b) => assert_eq!(json.as_array().unwrap().len(), b.len()),
                    }
                }
                assert_eq!(n, fields.len());
            })
            .unwrap();
        assert_eq!((lines, parsed.next()), (count, None), "{name}");
    }
}

#[test]
fn csv_of_a_board() {
    let session = Session::open(&data("stream/armv7-6.1.port")).unwrap();
    let trace = session.recording(0).unwrap();
    let mut out = vec![];
    let lines = export::csv(&trace, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().next().unwrap(), export::CSV_COLUMNS.join(","));
    assert_eq!(text.lines().count() as u64, lines + 1);
    assert_eq!(text.lines().filter(|l| l.contains(",flash,")).count(), 21);
    assert!(text.contains("\n4398803200,0,1,init,flash,erase,192,,,0,,,\n"), "{text}");
    assert!(text.contains(",phase_begin,,,,,,,,erase and write\n"));
}

/// A plug has no place, and neither has a flush whose completion the kernel gives the sector -1.
#[test]
fn csv_of_steps_without_a_place() {
    let text = b"# tracer: nop\n\
        \x20 a-1 [000] ..... 1.000000: block_rq_issue: 8,0 FF 0 () 0 + 0 [a]\n\
        \x20 a-1 [000] ..... 1.000010: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]\n\
        \x20 a-1 [000] ..... 1.000020: block_plug: [a]\n\
        \x20 a-1 [000] ..... 1.000030: block_rq_issue: 8,0 R 4096 () 8 + 8 [a]\n";
    let trace = Trace::from_bytes("given".as_ref(), text.as_slice().into()).unwrap();
    let mut out = vec![];
    export::csv(&trace, &mut out).unwrap();
    let rows: Vec<String> = String::from_utf8(out).unwrap().lines().skip(1).map(str::to_owned).collect();
    assert_eq!(
        rows,
        [
            "1000000000,0,1,a,block,issue,,,0,,0,,8:0 FN",
            "1000010000,0,1,a,block,complete,,,,,,,8:0 FN",
            "1000020000,0,1,a,block,plug,,,,,,,0:0 N",
            "1000030000,0,1,a,block,issue,,,4096,,4096,,8:0 R",
        ]
    );
}
