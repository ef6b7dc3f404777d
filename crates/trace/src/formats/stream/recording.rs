//! One recording of a stream, as a trace.

use super::session::{Session, SourceState};
use crate::bytes::until_nul;
use crate::decode::names::Names;
use crate::error::Error;
use crate::events::phase::Phases;
use crate::facts::{Facts, Kernel};
use crate::formats::recorded::pages::PageSource;
use crate::formats::recorded::{Delivered, Ring, RingBuffer, TASKS_BUFFER};
use crate::identity;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses, count_statistics};
use crate::source::Opened;
use serde_json::Value;
use std::sync::Arc;

/// `FS_INSTANCE_REQUESTS`: in a recording by task, the requests. Their issue and completion may run in the name of any task.
const REQUESTS_INSTANCE: u16 = 2;

impl Session {
    /// Opens one of `recordings`.
    pub(crate) fn opened(&self, index: usize) -> Result<Opened, Error> {
        let source = self.recording_sources.get(index).ok_or_else(|| Error::NoSuchRecording {
            path: self.path.clone(),
            index,
            count: self.recordings.len(),
        })?;
        Ok(opened(&self.file, &self.sources[*source], &self.phases, &self.losses))
    }
}

fn opened(file: &Arc<Input>, source: &SourceState, phases: &Phases, session_losses: &Losses) -> Opened {
    let mut losses = session_losses.clone();
    losses.merge(&source.losses);
    let mut json = |text: &Option<String>| match text {
        None => Value::Null,
        Some(t) => serde_json::from_str(t).unwrap_or_else(|_| {
            losses.add(Loss::FramesMalformed, 1);
            Value::Null
        }),
    };
    let mut facts = json(&source.facts);
    let stats = json(&source.stats);
    let mut buffers = vec![
        RingBuffer { name: String::new(), lanes: Vec::new() },
        RingBuffer { name: TASKS_BUFFER.to_string(), lanes: Vec::new() },
    ];
    if source.lanes.keys().any(|&(instance, _)| instance == REQUESTS_INSTANCE) {
        buffers.push(RingBuffer { name: "requests".to_string(), lanes: Vec::new() });
    }
    for (&(instance, cpu), index) in &source.lanes {
        buffers[usize::from(instance)].lanes.push((cpu, PageSource::Runs(Arc::clone(index))));
    }
    let highest = source.lanes.keys().map(|&(_, cpu)| u32::from(cpu) + 1).max();
    let said = source.hello.map_or(0, |h| h.cpus.min(8192));
    let mut names = Names::default();
    for &(tid, tgid, ref comm) in &source.tasks {
        names.set(tid, 0, until_nul(comm));
        // A kernel thread is its own process.
        if tgid != tid.into() {
            names.executed(tid);
        }
    }
    if let Some(mut named) = identity::merged(&source.names) {
        let threads = source.tasks.iter().filter(|&&(tid, tgid, _)| tgid != tid.into());
        named["threads"] = threads.map(|(tid, tgid, _)| serde_json::json!([tid, tgid])).collect();
        if !facts.is_object() {
            facts = serde_json::json!({});
        }
        facts["names"] = named;
    }
    let clock = facts["recording"]["clock"].as_str().unwrap_or("mono").to_string();
    let ring = Ring {
        file: Arc::clone(file),
        layout: source.layout(),
        schemas: Arc::clone(&source.schemas),
        buffers,
        header_page: source.header_page.clone().unwrap_or_default(),
        header_event: source.header_event.clone().unwrap_or_default(),
        clock,
        cpus: said.max(highest.unwrap_or(0)).max(1),
        time_offset: 0,
        kallsyms: None,
        printk: None,
        uname: uname(&Facts::of(&facts).kernel),
        read: Delivered::of(&stats),
        threads: None,
    };
    if stats.is_null() {
        losses.add(Loss::StatisticsMissing, 1);
    } else {
        count_statistics(&stats, &mut losses);
    }
    losses.add(Loss::NamesDropped, names.dropped);
    for search in facts["names"]["search"].as_array().into_iter().flatten() {
        losses.add(Loss::FileReportsDropped, search["notify_dropped"].as_u64().unwrap_or(0));
        losses.add(Loss::FileReportsLost, search["notify_overflows"].as_u64().unwrap_or(0));
    }
    Opened { facts, stats, phases: phases.clone(), losses, names, ..Opened::of(TraceKind::AgentStream, ring) }
}

/// The text of `uname -srvm`.
fn uname(kernel: &Kernel) -> String {
    if *kernel == Kernel::default() {
        return String::new();
    }
    let [release, version, machine] =
        [&kernel.release, &kernel.version, &kernel.machine].map(|said| said.as_deref().unwrap_or("?"));
    format!("Linux {release} {version} {machine}")
}
