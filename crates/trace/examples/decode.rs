//! Reads every field of every record of a trace and prints nothing but a sum: `decode FILE [THREADS]`, with so many threads
//! ahead; then stderr says what processor time this thread itself took. The sum is that of
//! `bench/trace-decode/libtracecmd_loop.c`: equal sums, equal fields.

use flashscope_trace::{Trace, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: decode FILE [THREADS]")?;
    let mut trace = Trace::open(path.as_ref())?;
    let threads = args.next();
    if let Some(threads) = &threads {
        trace.set_threads(threads.to_string_lossy().parse()?);
    }
    let (mut events, mut fields, mut sum) = (0u64, 0u64, 0u64);
    trace.for_each_record(&mut |r| {
        events += 1;
        sum = sum.wrapping_add(r.time.0).wrapping_add(u64::from(r.cpu));
        for (field, value) in r.fields() {
            fields += 1;
            let add = match value {
                Some(Value::Unsigned(v)) => v,
                // As libtraceevent has it: not sign-extended.
                Some(Value::Signed(v)) => v as u64 & (u64::MAX >> (64 - 8 * field.size.min(8))),
                Some(_) => {
                    r.schema.raw(field, r.data).map_or(0, |b| b.first().map_or(0, |&f| b.len() as u64 + u64::from(f)))
                }
                None => 0,
            };
            sum = sum.wrapping_add(add);
        }
    })?;
    println!("{events} events, {fields} fields, sum {sum:016x}");
    if threads.is_some() {
        // Nanoseconds on a processor come first (Documentation/scheduler/sched-stats.rst).
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        let ns: u64 = stat.split_whitespace().next().unwrap_or_default().parse()?;
        eprintln!("{:.3}", ns as f64 / 1e9);
    }
    Ok(())
}
