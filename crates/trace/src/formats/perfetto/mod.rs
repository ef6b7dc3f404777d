//! Reads Perfetto's traces: the protobuf that `perfetto` and `tracebox` write on Android and Linux. Only kernel events
//! (`FtraceEventBundle`), task names and losses are read.
//!
//! Sources: `protos/perfetto/trace/trace_packet.proto`, `ftrace/ftrace_event_bundle.proto`, `ftrace/ftrace_event.proto` of Perfetto 59.1.
//! Bundles of all CPUs are in the file in any order. One pass finds them; later passes merge them by time, with one bundle per CPU in
//! memory.

mod events;
mod index;
mod wire;

use super::parsed::{self, Item, Parser};
use super::{Format, Reader};
use crate::error::Error;
use crate::ids::TaskId;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::Loss;
use events::{Bundle, Running};
use index::Index;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;

pub(crate) const FORMAT: Format = Format {
    name: "Perfetto's traces of Android and Linux (protobuf): kernel events, names of tasks",
    read: "yes",
    written: "yes",
    recognised_by: "packets of TracePacket one behind the other",
    reader: Reader::Bytes {
        is: index::looks_like,
        open: |path, input| parsed::open(path, Box::new(open(path, input)?)),
    },
};

/// An indexed trace.
#[derive(Debug)]
pub(crate) struct Perfetto {
    input: Input,
    index: Index,
}

/// Finds the bundles of a trace.
pub(crate) fn open(path: &Path, input: Input) -> Result<Perfetto, Error> {
    let (input, damaged) = index::unpacked(path, &input)?.unwrap_or((input, 0));
    let mut index = index::index(&input).map_err(|e| Error::io(path, "read", e))?;
    index.losses.add(Loss::DataCut, damaged);
    if index.lanes.is_empty() {
        if index.losses.get(Loss::OtherMachines) > 0 {
            return Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: "is a Perfetto trace whose kernel events are of other machines (a virtual machine's guests): only those of \
                       the machine that recorded are read; record on the guest itself"
                    .to_string(),
            });
        }
        if index.losses.get(Loss::DataCut) > 0 {
            return Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: "is a Perfetto trace that is cut or damaged, and no kernel event is left; copy it again"
                    .to_string(),
            });
        }
        return Err(Error::Unsupported {
            path: path.to_path_buf(),
            what: format!(
                "is a Perfetto trace of {} packets, none of which has kernel events; record with the data source \
                 linux.ftrace and ftrace_events: \"block/*\"",
                index.packets
            ),
        });
    }
    Ok(Perfetto { input, index })
}

/// One CPU's bundles.
struct CpuBundles<'p> {
    cpu: u16,
    bundles: std::slice::Iter<'p, index::Bundle>,
    open: Option<Bundle>,
    running: Running,
}

impl CpuBundles<'_> {
    /// The time of the CPU's next event; opens the next bundle if needed.
    fn next_time(&mut self, input: &Input) -> io::Result<Option<u64>> {
        loop {
            if let Some(time) = self.open.as_ref().and_then(Bundle::next_time) {
                return Ok(Some(time));
            }
            let Some(next) = self.bundles.next() else { return Ok(None) };
            let mut bytes = vec![0; next.length as usize];
            input.read_exact_at(&mut bytes, next.offset)?;
            self.open = Some(Bundle::new(bytes));
        }
    }
}

impl Parser for Perfetto {
    fn kind(&self) -> TraceKind {
        TraceKind::Perfetto
    }

    /// `FtraceClock`: absent if the clock is the default.
    fn clock(&self) -> &str {
        match self.index.clock {
            0 => "boot",
            2 => "global",
            3 => "local",
            4 => "mono_raw",
            _ => "unknown",
        }
    }

    fn key(&self) -> &'static str {
        "perfetto"
    }

    fn title(&self) -> &'static str {
        "a Perfetto trace"
    }

    fn facts(&self, into: &mut serde_json::Value) {
        into["packets"] = self.index.packets.into();
    }

    fn walk(&self, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        for (loss, count) in self.index.losses.iter().filter(|(_, count)| *count > 0) {
            f(Item::Loss(loss, count));
        }
        for (tid, comm) in &self.index.names {
            f(Item::Task { tid: TaskId(*tid), comm, time: 0 });
        }
        let mut lanes: Vec<CpuBundles<'_>> = self
            .index
            .lanes
            .iter()
            .map(|(cpu, bundles)| CpuBundles {
                cpu: *cpu,
                bundles: bundles.iter(),
                open: None,
                running: Running::default(),
            })
            .collect();
        let mut heads = BinaryHeap::with_capacity(lanes.len());
        for (i, lane) in lanes.iter_mut().enumerate() {
            heads.extend(lane.next_time(&self.input)?.map(|time| Reverse((time, i))));
        }
        while let Some(Reverse((_, i))) = heads.pop() {
            let lane = &mut lanes[i];
            if let Some(bundle) = &mut lane.open {
                bundle.hand(lane.cpu, &self.index.kinds, &mut lane.running, f);
            }
            heads.extend(lane.next_time(&self.input)?.map(|time| Reverse((time, i))));
        }
        Ok(())
    }
}
