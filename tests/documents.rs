//! The documents: links, headings and paths that they name, and paths to documents that the source names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flashscope_tests::{flashscope, stdout, top};

/// Directories that hold no text of this project.
const SKIPPED: [&str; 5] = ["target", ".git", "out", "build", "node_modules"];

fn files(below: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(below) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !SKIPPED.contains(&name.as_str()) {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&top(), &[".md"], &mut found);
    found.sort();
    assert!(found.len() > 15, "only {found:?}");
    found
}

/// The text outside of fenced and indented code.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// A heading's anchor as GitHub makes it.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| line.starts_with('#').then(|| anchor(line.trim_start_matches('#').trim()));
    prose(text).lines().filter_map(heading).collect()
}

/// What stands between `](` and `)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned()).collect()
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().expect("a folder").join(path) };
            let found = match std::fs::read_to_string(&target) {
                Ok(text) => heading.is_empty() || anchors(&text).contains(heading),
                Err(_) => heading.is_empty() && target.exists(),
            };
            if !found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_document_begins_with_a_summary() {
    for document in documents().iter().filter(|path| path.starts_with(top().join("docs"))) {
        let text = std::fs::read_to_string(document).expect("a document");
        let lines: Vec<&str> = text.lines().collect();
        let begins = lines.first().is_some_and(|line| line.starts_with("# "));
        let says =
            lines.get(2).is_some_and(|line| line.starts_with(|c: char| c.is_alphanumeric() || "`*[".contains(c)));
        assert!(begins && says, "{}: a title, an empty line and a summary are missing", document.display());
    }
}

/// Folders of the repository, as paths in documents begin.
const FOLDERS: [&str; 17] = [
    "agent/", "bench/", "boards/", "chips/", "crates/", "disks/", "docs/", "fuzz/", "kernel/flashmon", "kernel/yaffs2",
    "packaging/", "power/", "studies/", "tests/", "tools/", "README.md", "CONTRIBUTING.md",
];

/// `tests/wear.rs` in backticks is a file or folder of this repository; patterns and names in capitals are none.
#[test]
fn every_path_that_a_document_names_is_there() {
    let mut gone = Vec::new();
    for document in documents().iter().filter(|path| path.starts_with(top().join("docs"))) {
        let text = prose(&std::fs::read_to_string(document).expect("a document"));
        for (index, quoted) in text.split('`').enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            let named = index % 2 == 1 && FOLDERS.iter().any(|folder| quoted.starts_with(folder));
            let placeholder =
                quoted.split('/').any(|part| part.len() > 1 && !part.contains('.') && part == part.to_uppercase());
            // What a build makes is there only after it.
            let made = quoted.starts_with("agent/build");
            if named && !placeholder && !made && quoted.chars().all(plain) && !top().join(quoted).exists() {
                gone.push(format!("{}: {quoted}", document.display()));
            }
        }
    }
    assert!(gone.is_empty(), "paths that are not there:\n{}", gone.join("\n"));
}

/// Messages, help and comments that send a reader to a document.
#[test]
fn every_document_that_the_source_names_is_there() {
    let mut sources = Vec::new();
    for folder in [
        "agent", "bench", "boards", "chips", "crates", "fuzz", "kernel", "packaging", "power", "studies", "tests",
        "tools",
    ] {
        files(&top().join(folder), &[".rs", ".c", ".h", ".toml", ".sh", ".md"], &mut sources);
    }
    let mut gone = Vec::new();
    for source in sources {
        let Ok(text) = std::fs::read_to_string(&source) else { continue };
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/_-".contains(c))).unwrap_or(rest.len());
            let named = format!("docs/{}.md", &rest[..end]);
            if rest[end..].starts_with(".md") && !top().join(&named).exists() {
                gone.push(format!("{}: {named}", source.display()));
            }
        }
    }
    assert!(gone.is_empty(), "documents that are not there:\n{}", gone.join("\n"));
}

/// The names of the fields of an object, and of those in `block`.
fn fields(report: &serde_json::Value) -> Vec<String> {
    let names = |value: &serde_json::Value| {
        value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    [names(report), names(&report["block"])].concat()
}

/// `docs/reference/json.md` names every field of a report on flash and on block I/O.
#[test]
fn the_reference_names_every_field_of_a_report() {
    let reference = std::fs::read_to_string(top().join("docs/reference/json.md")).expect("the reference");
    for trace in ["flashmon/paper.log", "trace_dat/x86_64-6.1-io.dat"] {
        let printed =
            stdout(flashscope().arg("report").arg(top().join("crates/trace/tests/data").join(trace)).arg("--json"));
        let found = fields(&serde_json::from_str(&printed).expect("JSON"));
        assert!(found.len() > 10, "{trace}: {found:?}");
        let gone: Vec<_> = found.iter().filter(|name| !reference.contains(&format!("`{name}`"))).collect();
        assert!(gone.is_empty(), "{trace}: docs/reference/json.md does not name {gone:?}");
    }
}

/// `docs/reference/findings.md` has a row for every rule that JSON can name.
#[test]
fn the_reference_describes_every_rule() {
    let reference = std::fs::read_to_string(top().join("docs/reference/findings.md")).expect("the reference");
    let schema = flashscope_tests::json(flashscope().args(["schema", "advise"]));
    let rules: Vec<&str> =
        schema["$defs"]["Rule"]["enum"].as_array().expect("rules").iter().filter_map(|r| r.as_str()).collect();
    assert!(rules.len() >= 28, "{rules:?}");
    let gone: Vec<_> = rules.iter().filter(|rule| !reference.contains(&format!("\n| `{rule}`"))).collect();
    assert!(gone.is_empty(), "docs/reference/findings.md does not describe {gone:?}");
}

/// Text as a cell of the page of published figures has it.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

/// `docs/reproduction.md` has every statement of a study, with its source, as the study's file words it.
#[test]
fn the_page_of_published_figures_has_the_statements_of_the_studies() {
    let page = std::fs::read_to_string(top().join("docs/reproduction.md")).expect("the page");
    let mut studies = Vec::new();
    files(&top().join("studies"), &[".toml"], &mut studies);
    let (mut found, mut gone) = (0, Vec::new());
    for study in studies {
        let text = std::fs::read_to_string(&study).expect("a study");
        for line in text.lines() {
            let value = ["statement = \"", "source = \""].iter().find_map(|key| line.strip_prefix(key));
            let Some(value) = value.and_then(|value| value.strip_suffix('"')) else { continue };
            found += 1;
            if !page.contains(&cell(&value.replace("\\\"", "\""))) {
                gone.push(format!("{}: {value}", study.display()));
            }
        }
    }
    assert!(found > 200, "{found} statements and sources");
    assert!(
        gone.is_empty(),
        "docs/reproduction.md lacks (write it with `flashscope study --all --report`):\n{}",
        gone.join("\n")
    );
}
