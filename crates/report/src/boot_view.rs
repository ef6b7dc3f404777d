//! Sentences and tables about a boot study, shared by the terminal and the HTML page.

use crate::rows::Rows;
use crate::text::{duration, grouped};
use flashscope_analysis::flash::{Activities, Activity, ActivityKind, Span};
use flashscope_study::boot::{Boot, BootGroup};

/// Largest number of phases in one table.
pub const MAX_PHASES: usize = 30;
/// Number of tasks named in a phase's row.
const NAMED: usize = 2;

/// The name of a phase. During a boot, programs that run before the login prompt are its init scripts.
fn name(phase: &Activity, prompt_ns: Option<u64>) -> &'static str {
    match (phase.kind, prompt_ns) {
        (ActivityKind::Programs, Some(prompt)) if phase.begin_ns < prompt => "init scripts",
        (kind, _) => kind.as_str(),
    }
}

/// Times in the table count from `begin_ns`.
pub fn phases(found: &Activities, begin_ns: u64, prompt_ns: Option<u64>) -> Rows {
    let heads = &["phase", "from", "to", "reads", "programs", "erases", "pages", "by"];
    Rows::new("tnnnnntt", heads, found.phases.iter(), MAX_PHASES, |phase| {
        let from = |ns: u64| duration(ns.saturating_sub(begin_ns));
        let pages = match phase.scan {
            Some(scan) => format!("{} in {} blocks", grouped(scan.pages), grouped(scan.blocks)),
            None => format!("{} to {}", grouped(phase.first_page), grouped(phase.last_page)),
        };
        let mut by: Vec<&str> = phase.tasks.iter().take(NAMED).map(|task| task.task.as_str()).collect();
        let more = format!("{} more", phase.tasks.len().saturating_sub(NAMED));
        if phase.tasks.len() > NAMED {
            by.push(&more);
        }
        vec![
            name(phase, prompt_ns).to_owned(),
            from(phase.begin_ns),
            from(phase.end_ns),
            grouped(phase.counts.reads),
            grouped(phase.counts.programs),
            grouped(phase.counts.erases),
            pages,
            by.join(", "),
        ]
    })
}

/// Spans below a figure: the time until the login prompt, and each phase.
pub fn spans(boot: &Boot) -> Vec<Span> {
    let until = Span { name: "until the login prompt".to_owned(), begin_ns: 0, end_ns: boot.prompt_ns };
    let phases = boot.phases.phases.iter().map(|phase| Span {
        name: name(phase, Some(boot.prompt_ns)).to_owned(),
        begin_ns: phase.begin_ns,
        end_ns: phase.end_ns,
    });
    std::iter::once(until).chain(phases).collect()
}

/// "jffs2, first boot: mounted after 1.08 s, login prompt after 68.05 s"
pub fn heading(group: &BootGroup, boot: &Boot) -> String {
    format!(
        "{}, Linux {}, {} boot: mounted after {}, login prompt after {}",
        group.filesystem,
        group.inputs.kernel_release,
        boot.name,
        duration(boot.mounted_ns),
        duration(boot.prompt_ns)
    )
}

/// The flashed file system, in a sentence.
pub fn flashed(group: &BootGroup) -> String {
    let root = &group.root;
    let pages = root.image_blocks * u64::from(group.pages_per_block);
    let [first, end] = group.partition_pages;
    let filler = match root.filler_bytes {
        0 => String::new(),
        bytes => format!(", {} of them a file of random bytes that fills it up", grouped(bytes)),
    };
    format!(
        "{} bytes of {} were flashed: pages {} to {} of a partition that goes to page {}; {} files, directories and links, {} bytes{filler}",
        grouped(root.image_bytes),
        group.filesystem,
        grouped(first),
        grouped(first + pages),
        grouped(end),
        grouped(root.files),
        grouped(root.files_bytes),
    )
}
