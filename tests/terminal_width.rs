//! A report fits the terminal: no line is wider, no word is broken, and the numbers of a column end at the same place.

use std::collections::BTreeSet;
use std::path::Path;

use flashscope_tests::{flashscope, output};

use crate::nothing_there::traces;

fn report(trace: &Path, columns: usize) -> Option<String> {
    let report = output(flashscope().env("COLUMNS", columns.to_string()).arg("report").arg(trace));
    report.status.success().then(|| String::from_utf8(report.stdout).expect("text"))
}

/// Runs of letters and digits.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Columns of a table in which each cell of one line is a number: where these end.
fn ends(line: &str) -> Vec<usize> {
    let cells: Vec<char> = line.chars().collect();
    (0..cells.len())
        .filter(|&at| {
            cells[at] != ' '
                && matches!(cells.get(at + 1), None | Some(' '))
                && matches!(cells.get(at + 2), None | Some(' '))
        })
        .collect()
}

fn looks_through(of: &str, text: &str, width: usize) {
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        assert!(line.chars().count() <= width, "{of} at {width}: {line}");
    }
    // "By size" has a name and numbers alone: they end where their heads do.
    let table = lines.iter().skip_while(|line| **line != "By size").skip(1).take_while(|line| !line.is_empty());
    let (heads, rows): (Vec<&str>, Vec<&str>) = {
        let all: Vec<&str> = table.copied().collect();
        let Some(rule) = all.iter().position(|line| line.trim().starts_with("--")) else { return };
        (all[..rule].to_vec(), all[rule + 1..].to_vec())
    };
    let allowed: BTreeSet<usize> = heads.iter().flat_map(|head| ends(head)).collect();
    for row in rows.iter().filter(|row| row.starts_with("  to ") || row.starts_with("  over ")) {
        let numbers: Vec<usize> = ends(row).into_iter().skip(1).collect();
        assert!(numbers.iter().all(|end| allowed.contains(end)), "{of} at {width}: {row}\n{}", heads.join("\n"));
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_word_is_broken() {
    let mut reports = 0;
    for trace in traces() {
        let of = trace.display().to_string();
        let Some(wide) = report(&trace, 200) else { continue };
        looks_through(&of, &wide, 200);
        let known = words(&wide);
        for width in [80, 100, 132] {
            let text = report(&trace, width).expect("a report");
            looks_through(&of, &text, width);
            let broken: Vec<&str> = words(&text).into_iter().filter(|word| !known.contains(word)).collect();
            assert!(broken.is_empty(), "{of} at {width}: {broken:?}");
        }
        reports += 1;
    }
    assert!(reports > 60, "{reports}");
}

#[test]
fn losses_have_one_line_where_there_are_none() {
    for trace in traces() {
        let Some(text) = report(&trace, 80) else { continue };
        let losses: Vec<&str> = text.lines().skip_while(|line| *line != "Losses").skip(1).collect();
        if !text.contains("  not seen  ") {
            assert_eq!(losses.len(), 1, "{}: {losses:?}", trace.display());
        }
    }
}
