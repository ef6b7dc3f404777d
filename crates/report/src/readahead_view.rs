//! What read-ahead brought in and what of it was used, as terminal and page show it.

use flashscope_analysis::readahead::{AccuracyFindings, Brought};

use crate::rows::Rows;
use crate::text::{grouped, number};

const HEADS: &[&str] = &["", "asked for", "ahead", "used", "unused:\nevicted", "unused:\nleft", "mapped,\nuse unknown"];

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
        grouped(pages.ahead_evicted_unused),
        grouped(pages.ahead_left_unused),
        grouped(pages.mapped),
    ]
}

/// Pages by file; the whole first.
pub fn files(found: &AccuracyFindings, most: usize) -> Rows {
    let mut rows = Rows::new("tnnnnnn", HEADS, found.files.iter(), most, |file| {
        let name = match file.device {
            Some(device) => format!("inode {} on {device}", file.inode),
            None => format!("inode {}", file.inode),
        };
        row(name, &file.pages)
    });
    rows.rows.insert(0, row("all files".to_owned(), &found.total));
    rows
}

/// Pages by the task that brought them in.
pub fn tasks(found: &AccuracyFindings, most: usize) -> Rows {
    Rows::new("tnnnnnn", HEADS, found.tasks.iter(), most, |task| row(format!("tid {}", task.tid), &task.pages))
}

/// What the counts do not hold.
pub fn notes(found: &AccuracyFindings) -> String {
    let mut notes = "Pages of 4 KiB; unused are those of read-ahead that nothing touched. Whether a used page was late is not told."
        .to_owned();
    if found.not_followed > 0 {
        notes += &format!(" {} pages beyond the most that are followed are in no count.", grouped(found.not_followed));
    }
    notes
}
