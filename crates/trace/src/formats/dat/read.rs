//! Reads trace.dat files: flashscope's own and trace-cmd's.

use super::cursor::Cursor;
use super::parts::Header;
use super::{CUT_BEFORE_EVENTS, MAGIC, v6, v7};
use crate::bytes::Endian;
use crate::decode::names::Names;
use crate::error::Error;
use crate::events::phase::Phases;
use crate::formats::packed;
use crate::formats::recorded::{Delivered, Ring, RingBuffer};
use crate::ids::TaskId;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::Loss;
use crate::losses::count_statistics;
use crate::ring::schema::MAX_SUBBUF;
use crate::source::Opened;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Clocks that are counters, not times (`trace_clocks` of kernel/trace/trace.c; `ppc-tb` is PowerPC's time base).
const COUNTERS: [&str; 3] = ["counter", "x86-tsc", "ppc-tb"];

/// The clock that counts jiffies (`trace_clock_jiffies`).
const JIFFIES: &str = "uptime";

pub(crate) fn looks_like_dat(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Opens a trace.dat. If its CPU data is cut, the rest is read; a cut header is an error.
pub(crate) fn open(path: &Path, file: Input) -> Result<Opened, Error> {
    let size = file.size().map_err(|e| Error::io(path, "read", e))?;
    let mut c = Cursor::of_file(&file, path, size);
    if c.bytes(10, "trace.dat's magic")? != MAGIC {
        return Err(c.bad("trace.dat's magic", "something else"));
    }
    let version = c.string("the version's number")?;
    let head = c.bytes(2, "byte order and size of long")?;
    c.endian = match head[0] {
        0 => Endian::Little,
        1 => Endian::Big,
        other => return Err(c.bad("byte order 0 or 1", format!("{other}"))),
    };
    let long_size = head[1];
    if !matches!(long_size, 4 | 8) {
        return Err(c.bad("a long of 4 or 8 bytes", format!("{long_size}")));
    }
    let page_size = c.u32("the page size")?;
    if !(64..=MAX_SUBBUF).contains(&page_size) {
        return Err(c.bad(format!("a page size from 64 to {MAX_SUBBUF}"), format!("{page_size}")));
    }
    let header = match version.as_str() {
        "6" => v6::read(&mut c, &file, long_size, page_size)?,
        "7" => v7::read(&mut c, &file, long_size, page_size)?,
        _ => {
            return Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: format!("trace.dat of version {}: versions 6 and 7 are read", version.escape_debug()),
            });
        }
    };
    bounded(path, &file, &header)?;
    finish(path, file, header)
}

/// Refuses small files that would give hours of events, because CPUs share their bytes or they are packed too well.
fn bounded(path: &Path, file: &Input, header: &Header) -> Result<(), Error> {
    let reading = |e| Error::io(path, "read", e);
    let given = file.given().map_err(reading)?;
    let most = packed::most(given);
    let (mut whole, mut is_packed) = (0_u64, false);
    for (_, source) in header.buffers.iter().flat_map(|(_, lanes)| lanes) {
        whole = whole.saturating_add(source.unpacked_size(file).map_err(reading)?);
        is_packed |= source.is_packed();
        if whole > most {
            let shared = || "has CPUs whose data is the same part of the file: no recorder writes that".to_string();
            let what = if is_packed { packed::grows_too_far(given, most) } else { shared() };
            return Err(Error::Unsupported { path: path.to_path_buf(), what });
        }
    }
    Ok(())
}

fn finish(path: &Path, file: Input, header: Header) -> Result<Opened, Error> {
    let mut losses = header.losses;
    let options = header.options;
    if options.ticks {
        return Err(Error::Unsupported {
            path: path.to_path_buf(),
            what: "its times are ticks of a CPU's counter; record with \"trace-cmd record -C mono\"".to_string(),
        });
    }
    if COUNTERS.contains(&header.clock.as_str()) {
        return Err(Error::Unsupported {
            path: path.to_path_buf(),
            what: format!(
                "has counts instead of times (its clock is {}), and no duration follows from them; record with \"trace-cmd record -C mono\"",
                header.clock
            ),
        });
    }
    if header.clock == JIFFIES {
        return Err(Error::Unsupported {
            path: path.to_path_buf(),
            what: "has times in whole jiffies of 1 to 10 ms (its clock is uptime), longer than most I/O takes: no duration follows from \
                   them; record with \"trace-cmd record -C mono\""
                .to_string(),
        });
    }
    if header.clock == "local" && header.cpus > 1 {
        losses.add(Loss::ClocksOfCpus, header.cpus.into());
    }
    if header.own.is_none() && header.buffers.iter().all(|(_, lanes)| lanes.is_empty()) {
        let what = match losses.get(Loss::DataCut) {
            0 => {
                "has no events: they are described, and none was recorded; record again with what is to be seen, as \
                  \"trace-cmd record -e block -C mono\""
            }
            _ => CUT_BEFORE_EVENTS,
        };
        return Err(Error::Unsupported { path: path.to_path_buf(), what: what.to_string() });
    }
    let mut names = Names::default();
    let (facts, stats, phases, mut clock) = match header.own {
        Some(own) => {
            losses.merge(&own.losses);
            for (tid, comm) in &own.tasks {
                names.set(*tid, 0, comm.as_bytes());
            }
            (own.facts, own.stats, own.phases, own.clock)
        }
        None => {
            for line in header.cmdlines.lines() {
                if let Some((pid, comm)) = line.trim_start().split_once(' ')
                    && let Ok(pid) = pid.parse()
                {
                    names.set_saved(TaskId(pid), comm.as_bytes());
                }
            }
            let stats = cpu_statistics(&options.cpustat);
            count_statistics(&stats, &mut losses);
            losses.add(Loss::StatisticsMissing, options.cpustat_dropped);
            if stats.is_null() {
                losses.add(Loss::StatisticsMissing, 1);
            }
            let facts = json!({"trace_dat": {
                "version": header.version, "uname": options.uname, "recorded_by": options.recorded_by,
            }});
            (facts, stats, Phases::default(), String::new())
        }
    };
    if clock.is_empty() {
        clock = header.clock;
    }
    losses.add(Loss::NamesDropped, names.dropped);
    let buffers = header.buffers.into_iter().map(|(name, lanes)| RingBuffer { name, lanes }).collect();
    let ring = Ring {
        file: Arc::new(file),
        layout: header.layout,
        schemas: Arc::new(header.schemas),
        buffers,
        header_page: header.header_page,
        header_event: header.header_event,
        clock,
        cpus: header.cpus,
        time_offset: options.time_offset,
        kallsyms: header.kallsyms,
        printk: header.printk,
        uname: options.uname,
        read: Delivered::of(&stats),
        threads: None,
    };
    Ok(Opened { facts, stats, phases, losses, names, ..Opened::of(TraceKind::TraceDat, ring) })
}

/// Converts CPUSTAT texts to the form of FS_STATS. For other tools, only the losses are taken: the counts of events were read before the
/// last sub-buffers were.
fn cpu_statistics(texts: &[String]) -> Value {
    let mut instances: Vec<Vec<Value>> = vec![Vec::new()];
    for text in texts {
        if text.trim_start().starts_with("Buffer:") {
            instances.push(Vec::new());
            continue;
        }
        let mut cpu = serde_json::Map::new();
        for line in text.lines() {
            let Some((label, value)) = line.split_once(':') else { continue };
            let key = match label.trim() {
                "CPU" => "cpu",
                "overrun" => "overrun",
                "commit overrun" => "commit_overrun",
                "dropped events" => "dropped",
                _ => continue,
            };
            if let Ok(n) = value.trim().parse::<u64>() {
                cpu.insert(key.to_string(), n.into());
            }
        }
        if cpu.contains_key("cpu")
            && let Some(list) = instances.last_mut()
        {
            list.push(Value::Object(cpu));
        }
    }
    if instances.iter().all(Vec::is_empty) {
        return Value::Null;
    }
    let instances: Vec<Value> =
        instances.into_iter().enumerate().map(|(i, cpu)| json!({"instance": i, "cpu": cpu})).collect();
    json!({ "instances": instances })
}
