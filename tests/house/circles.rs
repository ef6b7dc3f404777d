//! Which modules of a crate use which: no circles but those listed here.
//!
//! A module may use the files of its own folder, and they may use what it declares: together they are one room. Any other two
//! modules that use each other, also through a third, are a circle. Tests inside a module do not count.

use std::collections::{BTreeMap, BTreeSet};

use flashscope_tests::top;

use super::sources;

/// Circles that stay: the crate, its modules, and the reason.
const LISTED: &[(&str, &[&str], &str)] = &[];

type Path = Vec<String>;
type Uses = BTreeMap<Path, BTreeSet<Path>>;

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let inside =
        |(at, mark): &(usize, &str)| text[at + mark.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    let tests = text.match_indices("\n#[cfg(test)]\nmod ").find(inside).map_or(text.len(), |(at, _)| at);
    let body = &text[..tests];
    body.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::d}` as its paths: groups are taken apart.
fn paths(text: &str, before: &[String], found: &mut Vec<Path>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if word > 0 {
            path.push(rest[..word].to_owned());
            at += word;
        } else if rest.starts_with('{') {
            at += 1;
            loop {
                at += text[at..].len() - text[at..].trim_start_matches([' ', '\n', ',']).len();
                if text[at..].is_empty() || text[at..].starts_with('}') {
                    return at + 1;
                }
                let used = paths(&text[at..], &path, found);
                at += used.max(1);
                let next = text[at.min(text.len())..].find([',', '}']);
                at = at.min(text.len()) + next.unwrap_or(0);
            }
        }
        if !text[at..].starts_with("::") {
            found.push(path);
            return at;
        }
        at += 2;
    }
}

/// Paths that a module's code names from `crate`, `super`, `self`, from the crate's own top.
fn named(module: &[String], text: &str) -> Vec<Path> {
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(root) {
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &text[at + root.len()..];
            let mut levels = usize::from(root == "super::");
            while let Some(higher) = rest.strip_prefix("super::") {
                (rest, levels) = (higher, levels + 1);
            }
            let base = if root == "crate::" { &[] } else { &module[..module.len().saturating_sub(levels)] };
            paths(rest, base, &mut found);
        }
    }
    found
}

/// What each module of a crate uses, itself and its own files left out.
fn uses(crate_name: &str) -> Uses {
    let src = top().join("crates").join(crate_name).join("src");
    let mut modules: BTreeMap<Path, String> = BTreeMap::new();
    for file in sources(&src, &[".rs"]) {
        let below = file.strip_prefix(&src).expect("below src").with_extension("");
        let mut path: Path = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        path.pop_if(|last| last == "mod" || last == "lib" || last == "main");
        modules.insert(path, code(&std::fs::read_to_string(&file).expect("a module")));
    }
    let of = |module: &Path, text: &str| {
        let to_module = |mut path: Path| {
            while !modules.contains_key(&path) {
                path.pop();
            }
            path
        };
        let used = named(module, text).into_iter().map(to_module);
        used.filter(|path| !path.starts_with(module)).collect::<BTreeSet<_>>()
    };
    modules.iter().map(|(module, text)| (module.clone(), of(module, text))).collect()
}

fn reached(uses: &Uses, from: &Path) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Path> = uses[from].iter().collect();
    while let Some(next) = open.pop() {
        if found.insert(next.clone()) {
            open.extend(&uses[next]);
        }
    }
    found
}

/// Modules that reach each other, as one set each.
fn circles(uses: &Uses) -> BTreeSet<Vec<String>> {
    let reach: BTreeMap<&Path, BTreeSet<Path>> = uses.keys().map(|module| (module, reached(uses, module))).collect();
    let circle = |module: &Path| {
        let back = reach[module].iter().filter(|other| reach[other].contains(module));
        back.map(|path| path.join("::")).collect::<Vec<_>>()
    };
    uses.keys().map(circle).filter(|found| !found.is_empty()).collect()
}

/// The same between the rooms of a crate, where a folder with all in it is one room.
fn rooms(uses: &Uses) -> Uses {
    let mut found = Uses::new();
    for (module, used) in uses {
        let Some(room) = module.first() else { continue };
        let others = used.iter().filter_map(|path| path.first()).filter(|other| *other != room);
        let others: Vec<Path> = others.map(|other| vec![other.clone()]).collect();
        found.entry(vec![room.clone()]).or_default().extend(others);
    }
    found
}

#[test]
fn modules_use_each_other_in_no_circle() {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(top().join("crates")).expect("crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let uses = uses(&name);
        let mut of_crate = circles(&uses);
        of_crate.extend(circles(&rooms(&uses)));
        found.extend(of_crate.into_iter().map(|circle| (name.clone(), circle)));
    }
    let listed: BTreeSet<(String, Vec<String>)> = LISTED
        .iter()
        .map(|(name, modules, _)| ((*name).to_owned(), modules.iter().map(|module| (*module).to_owned()).collect()))
        .collect();
    let open: Vec<_> = found.difference(&listed).collect();
    assert!(open.is_empty(), "modules that use each other: {open:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "listed, but no circle any more: {gone:#?}");
}

#[test]
fn groups_and_parents_are_followed() {
    let module = ["a".to_owned(), "b".to_owned()];
    let text = "use super::{c::D, e::{F, g}};\nlet x = crate::h::I::new();\nuse super::super::k;";
    let found: BTreeSet<String> = named(&module, text).iter().map(|path| path.join("::")).collect();
    let wanted = ["a::c::D", "a::e::F", "a::e::g", "h::I::new", "k"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(wanted));
}
