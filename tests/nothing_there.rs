//! What a trace has nothing of is not in its report: no heading without text below it, no table without a row, no bare "none".

use std::path::{Path, PathBuf};

use flashscope_tests::{TempDir, flashscope, output, top};

/// Every trace of the tests' cases and of the formats' tests.
pub fn traces() -> Vec<PathBuf> {
    let in_dir = |dir: &str| {
        std::fs::read_dir(top().join(dir)).expect("the directory").map(|entry| entry.expect("an entry").path())
    };
    let cases = in_dir("tests/cases").filter(|path| path.is_dir()).map(|path| path.join("input"));
    let recorded =
        in_dir("crates/trace/tests/data/trace_dat").filter(|path| path.extension().is_some_and(|ext| ext == "dat"));
    cases.chain(recorded).filter(|path| path.exists()).collect()
}

/// The text between two marks, and what is behind it.
fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<(&'t str, &'t str)> {
    text.split_once(from)?.1.split_once(to)
}

fn looks_through_page(of: &Path, page: &str) {
    let of = of.display();
    let main = between(page, "<main>", "</main>").expect("main").0;
    let mut rest = main;
    while let Some((id, behind)) = between(rest, "<h2 id=\"", "\"") {
        let section = behind.split_once("</h2>").expect("its end").1;
        let section = section.split("<h2 ").next().expect("a part");
        assert!(
            section.contains("</p>")
                || section.contains("</table>")
                || section.contains("<svg")
                || section.contains("</dl>")
                || id == "explore-heading",
            "{of}: nothing below {id}"
        );
        rest = behind;
    }
    for table in main.split("<table>").skip(1) {
        let table = table.split("</table>").next().expect("a part");
        assert!(
            between(table, "<tbody", "</tbody>").is_some_and(|(body, _)| body.contains("<tr")),
            "{of}: no row: {table}"
        );
    }
    for list in main.split("<ol class=\"findings\">").skip(1) {
        assert!(list.trim_start().starts_with("<li>"), "{of}: no finding");
    }
    let mut contents = between(page, "<nav", "</nav>").expect("contents").0;
    while let Some((id, behind)) = between(contents, "href=\"#", "\"") {
        assert!(main.contains(&format!("<h2 id=\"{id}\">")), "{of}: {id} of the contents is not there");
        contents = behind;
    }
    for words in ["None.", ": none", "nothing;", "No stage", "No bio was queued.", "Nobody waited."] {
        assert!(!main.contains(&format!("{words}</p>")), "{of}: {words}");
    }
}

fn looks_through_text(of: &Path, text: &str) {
    let of = of.display();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).copied().unwrap_or_default();
        // A heading stands alone between an empty line and its indented section.
        let heading = at > 0 && lines[at - 1].is_empty() && !line.is_empty() && !line.starts_with(' ');
        assert!(!heading || next.starts_with("  "), "{of}: nothing below {line}");
        let rule = !line.trim().is_empty() && line.trim().chars().all(|c| c == '-');
        assert!(!rule || next.starts_with("  "), "{of}: no row below {}", lines[at - 1]);
        assert!(!matches!(line.trim(), "none" | "None." | "nothing" | "no flash operation"), "{of}: {line}");
    }
}

#[test]
fn a_section_with_nothing_is_not_there() {
    let dir = TempDir::new("nothing-there");
    let page = dir.path().join("page.html");
    let mut reports = 0;
    for trace in traces() {
        for by in [&[][..], &["--by", "layer"], &["--by", "file"], &["--by", "device"], &["--by", "call"]] {
            let report = output(flashscope().arg("report").args(by).arg(&trace).arg("--html").arg(&page));
            if !report.status.success() {
                continue;
            }
            looks_through_text(&trace, std::str::from_utf8(&report.stdout).expect("text"));
            looks_through_page(&trace, &std::fs::read_to_string(&page).expect("a page"));
            std::fs::remove_file(&page).expect("removed");
            reports += 1;
        }
    }
    assert!(reports > 60, "{reports} traces have a report");
}
