//! Pages that read-ahead brought in and their use, shared by the terminal and the HTML page.

use flashscope_analysis::Unknown;
use flashscope_analysis::cache::{AccuracyFindings, Brought};
use flashscope_analysis::file_label;

use crate::rows::Rows;
use crate::text::{grouped, number};

const HEADS: &[&str] =
    &["", "requested", "ahead", "used", "of them\nlate", "unused:\nevicted", "unused:\nleft", "mapped,\nuse unknown"];

fn row(name: String, pages: &Brought) -> Vec<String> {
    let used = match pages.ahead {
        0 => "–".to_owned(),
        ahead => {
            let percent = number(pages.ahead_used as f64 / ahead as f64 * 100.0, 0);
            format!("{} ({percent} %)", grouped(pages.ahead_used))
        }
    };
    vec![
        name,
        grouped(pages.requested),
        grouped(pages.ahead),
        used,
        pages.ahead_late.map_or_else(|| "–".to_owned(), grouped),
        pages.ahead_evicted_unused.map_or_else(|| "–".to_owned(), grouped),
        grouped(pages.ahead_left_unused),
        grouped(pages.mapped),
    ]
}

/// Pages by file; the total first.
pub fn files(found: &AccuracyFindings, most: usize) -> Rows {
    let mut rows = Rows::new("tnnnnnnn", HEADS, found.files.iter(), most, |file| {
        let name = match (&file.path, file.device) {
            (Some(path), _) => path.clone(),
            (None, Some(device)) => file_label(None, file.inode, &device.to_string()),
            (None, None) => format!("inode {}", file.inode),
        };
        row(name, &file.pages)
    });
    rows.rows.insert(0, row("all files".to_owned(), &found.total));
    rows
}

/// Pages by the task that brought them in.
pub fn tasks(found: &AccuracyFindings, most: usize) -> Rows {
    Rows::new("tnnnnnnn", HEADS, found.tasks.iter(), most, |task| {
        let name = match &task.name {
            Some(name) => format!("{name} ({})", task.tid),
            None => format!("tid {}", task.tid),
        };
        row(name, &task.pages)
    })
}

/// Why the use is unknown, and what to do.
pub fn unknown(why: &Unknown) -> String {
    match why.next.as_str() {
        "" => format!("Use of read-ahead is unknown: {}.", why.missing),
        next => format!("Use of read-ahead is unknown: {}; {next}.", why.missing),
    }
}

/// Notes on pages that the counts leave out.
pub fn notes(found: &AccuracyFindings) -> String {
    let mut notes = "Pages of 4 KiB; unused are those of read-ahead that nothing touched. ".to_owned();
    notes += match found.total.ahead_late {
        Some(_) => "Late: not arrived from the device when it was requested.",
        None => {
            "Late pages (not arrived when requested) are known only if the trace shows the block device (--events \
             block,cache,syscall); on MTD the reader brings pages in itself, and none is late."
        }
    };
    if found.total.origin_unknown > 0 {
        notes += &format!(
            " No read asked for {} more pages, and the trace has no event that shows writes (writeback:writeback_dirty_folio, or the \
             calls): whether they were read ahead or written is unknown; in no other count.",
            grouped(found.total.origin_unknown)
        );
    }
    if found.faults_not_shown {
        notes += " The trace has no event that shows faults (filemap:mm_filemap_fault, or flashscope:file_fault): whether a page that \
                  no read touched was used through a mapping is unknown.";
    }
    if found.total.ahead_evicted_unused.is_none() {
        notes += " The trace has no event that shows pages leaving (filemap:mm_filemap_delete_from_page_cache): which of the unused \
                  pages were evicted is unknown.";
    }
    if found.file_systems_own > 0 {
        notes += &format!(
            " {} pages were read in no call of the trace, or in a write to another file: the file system's own (garbage that it collects, a \
             symlink's target) or of a call that is not followed (sendfile()); in no other count.",
            grouped(found.file_systems_own)
        );
    }
    if found.arrival_unknown > 0 {
        notes += &format!(
            " The arrival of {} pages was not seen: they are not counted as late.",
            grouped(found.arrival_unknown)
        );
    }
    if found.tasks_forgotten > 0 {
        notes += &format!(
            " {} times more tasks were in calls than are followed, and the oldest was forgotten: what came for it later may be in a \
             wrong count.",
            grouped(found.tasks_forgotten)
        );
    }
    if found.not_followed > 0 {
        notes += &format!(" {} pages beyond the limit are not counted.", grouped(found.not_followed));
    }
    notes
}
