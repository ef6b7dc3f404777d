//! Figures of any JSON result of flashscope: of a study, a benchmark, a kept report of another kind.

use super::change::RunFigures;
use super::figures::{Better, Figure, FigureUnit};
use serde_json::Value;
use std::collections::HashMap;

/// Members that name the element of a list.
const NAMES: [&str; 10] =
    ["id", "name", "figure", "title", "workload", "setting", "filesystem", "board", "device", "stage"];
/// Members that are no figures.
const SKIPPED: [&str; 5] = ["schema", "losses", "timeline", "points", "over_time"];
/// Figures of one document at most; the further ones are left out.
const MOST_FIGURES: usize = 20_000;
/// Bytes of the name of a figure at most: one with a longer name is left out. A name is repeated in all that lies below it.
const MOST_NAME_BYTES: usize = 1024;
/// Levels of lists and members that are followed.
const MOST_LEVELS: usize = 32;

/// All numbers of a document, each under its path; lists by what names their elements, else by number.
pub fn of_json(title: &str, document: &Value) -> RunFigures {
    let mut figures = Vec::new();
    walk(document, &mut String::new(), 0, &mut figures);
    RunFigures { title: title.to_owned(), figures, ..RunFigures::default() }
}

fn walk(value: &Value, path: &mut String, level: usize, figures: &mut Vec<Figure>) {
    if level > MOST_LEVELS || figures.len() >= MOST_FIGURES || path.len() > MOST_NAME_BYTES {
        return;
    }
    let length = path.len();
    match value {
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                let (unit, better) = unit(path);
                figures.push(Figure::plain(path, unit, better, number));
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| !SKIPPED.contains(&name.as_str())) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(member, path, level + 1, figures);
                path.truncate(length);
            }
        }
        Value::Array(elements) => {
            let name = |element: &Value| NAMES.iter().find_map(|name| element[name].as_str().map(str::to_owned));
            let mut called: HashMap<String, u32> = HashMap::new();
            for name in elements.iter().filter_map(name) {
                *called.entry(name).or_default() += 1;
            }
            for (i, element) in elements.iter().enumerate() {
                match name(element).filter(|name| called[name] == 1) {
                    Some(name) => path.extend(["[", &name, "]"]),
                    None => path.push_str(&format!("[{i}]")),
                }
                walk(element, path, level + 1, figures);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// By the suffix of the last member's name, as all results of flashscope have it.
fn unit(path: &str) -> (FigureUnit, Better) {
    let last = path.rsplit('.').next().unwrap_or(path);
    let last = last.split('[').next().unwrap_or(last);
    match last {
        last if last.ends_with("_ns") => (FigureUnit::Nanoseconds, Better::Lower),
        last if last.ends_with("_bytes") || last == "bytes" => (FigureUnit::Bytes, Better::Neither),
        _ => (FigureUnit::Number, Better::Neither),
    }
}
