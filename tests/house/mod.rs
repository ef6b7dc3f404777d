//! The tree itself: the map agrees with it, files and functions stay short, modules do not use each other in circles.

mod circles;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flashscope_tests::top;

/// Lines of the longest source file and of the longest function.
const FILE_LINES: usize = 900;
const FUNCTION_LINES: usize = 100;

/// Functions that are longer, and why.
const LONG: &[(&str, &str, &str)] = &[
    ("agent/record/probe_points.c", "fs_probes_plan", "a table of probe points, written as calls"),
    ("tests/bad_input.rs", "names_and_files_that_are_wrong", "a table of commands and messages"),
    ("tests/bounds.rs", "hostile", "a table of hostile inputs"),
];

/// Folders of the repository that are tracked, relative to its top.
fn folders(below: &str) -> BTreeSet<String> {
    let ignored = std::fs::read_to_string(top().join(".gitignore")).expect(".gitignore");
    let ignored: BTreeSet<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    let entries = std::fs::read_dir(top().join(below)).expect("a folder").flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".git" && !ignored.contains(name.as_str())).collect()
}

/// Files below a folder with one of these endings, without what a build makes.
pub fn sources(below: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(below) else { return found };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_made = ["target", "build", "out"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_made {
            found.extend(sources(&path, endings));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn all_sources() -> Vec<(String, String)> {
    let folders = ["agent", "bench", "crates", "fuzz", "kernel", "tests"];
    let found: Vec<PathBuf> =
        folders.iter().flat_map(|folder| sources(&top().join(folder), &[".rs", ".c", ".h"])).collect();
    assert!(found.len() > 500, "only {} source files", found.len());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source file");
        (path.strip_prefix(top()).expect("below the top").display().to_string(), text)
    };
    found.into_iter().map(read).collect()
}

/// The first cells of the table below `## Folders`.
fn mapped() -> BTreeSet<String> {
    let map = std::fs::read_to_string(top().join("docs/explanation/architecture.md")).expect("the map");
    let folders = map.split("\n## ").find_map(|part| part.strip_prefix("Folders\n")).expect("a part named Folders");
    let cells = folders.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split_whitespace().map(|name| name.trim_matches('`').to_owned()));
    names.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn the_map_names_every_folder_and_every_crate_and_nothing_else() {
    let mut there = folders("");
    there.remove("crates");
    there.extend(folders("crates").into_iter().map(|name| format!("crates/{name}")));
    assert_eq!(mapped(), there, "docs/explanation/architecture.md (left) and the tree (right) differ");
}

#[test]
fn every_crate_says_in_ten_lines_what_it_is_for() {
    for name in folders("crates") {
        let path = top().join("crates").join(&name).join("README.md");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let lines = text.lines().count();
        assert!((6..=16).contains(&lines), "{}: {lines} lines", path.display());
        assert!(text.starts_with("# flashscope"), "{}: no title", path.display());
    }
}

#[test]
fn no_source_file_is_long() {
    let long: Vec<String> = all_sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|&(_, lines)| lines > FILE_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "longer than {FILE_LINES} lines:\n{}", long.join("\n"));
}

/// Name, first line and lines of each function, as rustfmt and clang-format lay them out.
fn functions(path: &str, text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let (name, indent) = if path.ends_with(".rs") {
            let indent = &line[..line.len() - line.trim_start().len()];
            let Some((before, after)) = line.trim_start().split_once("fn ") else { continue };
            let is_plain = before
                .split_whitespace()
                .all(|word| ["pub", "const", "async", "default", "in"].contains(&word) || word.starts_with("pub("));
            if !is_plain || line.ends_with(';') || line.ends_with('}') {
                continue;
            }
            (after.split(['(', '<']).next().unwrap_or_default(), indent)
        } else if *line == "{" {
            let head = lines[..first].iter().rev().find(|line| !line.starts_with([' ', '\t']));
            let name = head.and_then(|line| line.split('(').next()?.rsplit([' ', '*']).next());
            (name.unwrap_or_default(), "")
        } else {
            continue;
        };
        let end = format!("{indent}}}");
        let length = lines[first..].iter().position(|line| *line == end).map_or(lines.len() - first, |last| last + 1);
        found.push((name.to_owned(), first + 1, length));
    }
    found
}

#[test]
fn no_function_is_long() {
    let (mut long, mut count, mut excused) = (Vec::new(), 0, BTreeSet::new());
    for (path, text) in all_sources() {
        for (name, first, length) in functions(&path, &text) {
            count += 1;
            if length > FUNCTION_LINES {
                match LONG.iter().find(|(file, function, _)| *file == path && *function == name) {
                    Some(&(file, function, _)) => drop(excused.insert((file, function))),
                    None => long.push(format!("{path}:{first}: {name}: {length} lines")),
                }
            }
        }
    }
    assert!(count > 5000, "only {count} functions were found");
    assert!(long.is_empty(), "longer than {FUNCTION_LINES} lines:\n{}", long.join("\n"));
    let listed: BTreeSet<_> = LONG.iter().map(|&(file, function, _)| (file, function)).collect();
    assert_eq!(excused, listed, "the list names functions that are short or gone");
}

/// The reader above finds a function's end.
#[test]
fn functions_are_measured_to_their_closing_brace() {
    let rust = "impl A {\n    pub(crate) fn one(&self)\n    where\n        A: B,\n    {\n        if x {\n        }\n    }\n}\n";
    assert_eq!(functions("a.rs", rust), [("one".to_owned(), 2, 7)]);
    let c = "static int *two(int a,\n\t\tint b)\n{\n\tif (a) {\n\t}\n\treturn 0;\n}\n";
    assert_eq!(functions("a.c", c), [("two".to_owned(), 3, 5)]);
}

/// A module with files of its own is `name/mod.rs`, never `name.rs` beside `name/`.
#[test]
fn a_module_with_files_of_its_own_is_a_folder_with_mod_rs() {
    let found = ["crates", "tests"].iter().flat_map(|folder| sources(&top().join(folder), &[".rs"]));
    let is_beside = |path: &PathBuf| !sources(&path.with_extension(""), &[".rs"]).is_empty();
    let beside: Vec<PathBuf> = found.filter(is_beside).collect();
    assert!(beside.is_empty(), "beside a folder of the same name: {beside:?}");
}

/// The text between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}")).1;
    rest.split_once(after).map_or(rest, |(found, _)| found)
}

#[test]
fn the_version_is_the_same_wherever_it_is_written() {
    let read = |path: &str| std::fs::read_to_string(top().join(path)).expect(path);
    let version = between(&read("Cargo.toml"), "[workspace.package]\n", "\n\n").to_owned();
    let version = between(&version, "version = \"", "\"");
    for (path, before, after) in [
        ("agent/common/cmds.h", "#define FS_AGENT_VERSION \"", "\""),
        ("packaging/buildroot/package/flashscope-agent/flashscope-agent.mk", "FLASHSCOPE_AGENT_VERSION = ", "\n"),
        ("packaging/openwrt/flashscope-agent/Makefile", "PKG_VERSION:=", "\n"),
        ("CHANGELOG.md", "\n## ", "\n"),
    ] {
        assert_eq!(between(&read(path), before, after), version, "{path}");
    }
    let recipe = format!("packaging/yocto/recipes-devtools/flashscope-agent/flashscope-agent_{version}.bb");
    assert!(top().join(&recipe).is_file(), "{recipe} is not there");
}
