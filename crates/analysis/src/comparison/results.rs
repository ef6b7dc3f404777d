//! Figures of any JSON result of flashscope: of a study, a benchmark, a kept report of another kind.

use super::change::RunFigures;
use super::figures::{Better, Figure, FigureUnit};
use crate::units::grouped;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// Members that name an element of a list.
const NAMES: [&str; 10] =
    ["id", "name", "figure", "title", "workload", "setting", "filesystem", "board", "device", "stage"];
/// Members that are no figures.
const SKIPPED: [&str; 5] = ["schema", "losses", "timeline", "points", "over_time"];
/// Most figures of one document; further ones are left out.
const MOST_FIGURES: usize = 20_000;
/// Most bytes of a figure's name; figures with longer names are left out. Each name is repeated in all names below it.
const MOST_NAME_BYTES: usize = 1024;
/// Most levels of lists and members.
const MOST_LEVELS: usize = 32;

/// All numbers of a document, each under its path; elements of lists by their name, else by number.
pub(super) fn of_json(title: &str, text: &[u8]) -> RunFigures {
    let mut so_far = SoFar::default();
    let seed = Kept { level: 0, so_far: &mut so_far };
    let document = seed.deserialize(&mut serde_json::Deserializer::from_slice(text));
    let mut figures = Vec::new();
    let mut left_out = so_far.left_out;
    if let Ok(document) = document {
        left_out |= !walk(&document.value, &mut String::new(), &mut figures);
    }
    let left_out = left_out.then(|| {
        format!(
            "only a part is compared: the first {} figures, to a depth of {MOST_LEVELS} levels, with names of up to {} bytes; the file has \
             more",
            grouped(MOST_FIGURES as u64),
            grouped(MOST_NAME_BYTES as u64)
        )
    });
    RunFigures { title: title.to_owned(), figures, left_out, ..RunFigures::default() }
}

/// A value with the numbers below it; nothing else of a document is kept.
enum Value {
    Nothing,
    Number(f64),
    Members(Vec<(String, Value)>),
    /// Each with its index in the list.
    Elements(Vec<(usize, Named)>),
}

struct Named {
    value: Value,
    /// A text, which may name the object that it is a member of.
    text: Option<String>,
    /// Its name, from one of its members.
    name: Option<String>,
}

impl From<Value> for Named {
    fn from(value: Value) -> Named {
        Named { value, text: None, name: None }
    }
}

/// Counts of a document while it is read.
#[derive(Default)]
struct SoFar {
    numbers: usize,
    /// A limit was exceeded.
    left_out: bool,
}

/// Reads the numbers of a value, up to the most figures.
struct Kept<'a> {
    level: usize,
    so_far: &'a mut SoFar,
}

impl Kept<'_> {
    fn below(&mut self) -> Kept<'_> {
        Kept { level: self.level + 1, so_far: self.so_far }
    }

    /// Whether nothing below would be kept.
    fn is_done(&self) -> bool {
        self.level >= MOST_LEVELS || self.so_far.numbers >= MOST_FIGURES
    }

    fn number(self, number: f64) -> Named {
        if self.so_far.numbers >= MOST_FIGURES {
            self.so_far.left_out = true;
            return Value::Nothing.into();
        }
        self.so_far.numbers += 1;
        Value::Number(number).into()
    }
}

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Named;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Named, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Named;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Named, E> {
        Ok(Value::Nothing.into())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Named, E> {
        Ok(Value::Nothing.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Named, E> {
        Ok(self.number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Named, E> {
        Ok(self.number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Named, E> {
        Ok(self.number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Named, E> {
        let text = (text.len() <= MOST_NAME_BYTES).then(|| text.to_owned());
        Ok(Named { value: Value::Nothing, text, name: None })
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Named, A::Error> {
        let mut elements = Vec::new();
        for place in 0.. {
            if self.is_done() {
                while list.next_element::<IgnoredAny>()?.is_some() {
                    self.so_far.left_out = true;
                }
                break;
            }
            match list.next_element_seed(self.below())? {
                Some(Named { value: Value::Nothing, .. }) => {}
                Some(element) => elements.push((place, element)),
                None => break,
            }
        }
        Ok(if elements.is_empty() { Value::Nothing } else { Value::Elements(elements) }.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Named, A::Error> {
        let mut members = Vec::new();
        let mut name: Option<(usize, String)> = None;
        while let Some(key) = map.next_key::<String>()? {
            let rank = NAMES.iter().position(|name| *name == key);
            let is_beyond = key.len() > MOST_NAME_BYTES || (self.is_done() && rank.is_none());
            if is_beyond || SKIPPED.contains(&key.as_str()) {
                self.so_far.left_out |= is_beyond;
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Named { value, text, .. } = map.next_value_seed(self.below())?;
            if let Some((rank, text)) = rank.zip(text)
                && name.as_ref().is_none_or(|(best, _)| rank < *best)
            {
                name = Some((rank, text));
            }
            if !matches!(value, Value::Nothing) {
                members.push((key, value));
            }
        }
        let value = if members.is_empty() { Value::Nothing } else { Value::Members(members) };
        Ok(Named { value, text: None, name: name.map(|(_, name)| name) })
    }
}

/// Returns whether all names are short enough.
fn walk(value: &Value, path: &mut String, figures: &mut Vec<Figure>) -> bool {
    if path.len() > MOST_NAME_BYTES {
        return false;
    }
    let (length, mut all) = (path.len(), true);
    match value {
        Value::Number(number) => {
            let (unit, better) = unit(path);
            figures.push(Figure::plain(path, unit, better, *number));
        }
        Value::Members(members) => {
            for (name, member) in members {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                all &= walk(member, path, figures);
                path.truncate(length);
            }
        }
        Value::Elements(elements) => {
            let mut called: HashMap<&str, u32> = HashMap::new();
            for name in elements.iter().filter_map(|(_, element)| element.name.as_deref()) {
                *called.entry(name).or_default() += 1;
            }
            for (place, element) in elements {
                match element.name.as_deref().filter(|name| called[name] == 1) {
                    Some(name) => path.extend(["[", name, "]"]),
                    None => path.push_str(&format!("[{place}]")),
                }
                all &= walk(&element.value, path, figures);
                path.truncate(length);
            }
        }
        Value::Nothing => {}
    }
    all
}

/// Unit by the suffix of the last member's name, as in all results of flashscope.
fn unit(path: &str) -> (FigureUnit, Better) {
    let last = path.rsplit('.').next().unwrap_or(path);
    let last = last.split('[').next().unwrap_or(last);
    match last {
        last if last.ends_with("_ns") => (FigureUnit::Nanoseconds, Better::Lower),
        last if last.ends_with("_bytes") || last == "bytes" => (FigureUnit::Bytes, Better::Neither),
        _ => (FigureUnit::Number, Better::Neither),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Vec<(String, f64)> {
        of_json("r", text.as_bytes()).figures.iter().map(|figure| (figure.name(), figure.value)).collect()
    }

    fn expected(figures: &[(&str, f64)]) -> Vec<(String, f64)> {
        figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn figures_have_the_names_of_what_they_are_in() {
        let text = r#"{"schema": 1, "runs": [{"p99_ns": 5, "name": "a", "id": "first"}, {"none": null}, {"name": "b", "bytes": -1},
            {"name": "b", "bytes": 2.5}], "losses": [1], "list": [[7], "text", true]}"#;
        let names = [("runs[first].p99_ns", 5.0), ("runs[2].bytes", -1.0), ("runs[3].bytes", 2.5), ("list[0][0]", 7.0)];
        assert_eq!(figures(text), expected(&names));
    }

    /// Numbers, levels and bytes of a name are limited. What exceeds a limit is reported.
    #[test]
    fn what_is_kept_is_bounded() {
        let says = |text: &str| of_json("r", text.as_bytes()).left_out.is_some();
        let exactly = |n: usize| format!("{{\"n\": [{}0]}}", "0,".repeat(n - 1));
        assert!(!says(&exactly(MOST_FIGURES)) && says(&exactly(MOST_FIGURES + 1)));
        let many = format!("{{\"n\": [{}0]}}", "0,".repeat(MOST_FIGURES + 10));
        assert_eq!(figures(&many).len(), MOST_FIGURES);
        let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert_eq!(figures(&nested(MOST_LEVELS)).len(), 1);
        assert_eq!(figures(&nested(MOST_LEVELS + 1)).len(), 0);
        assert!(!says(&nested(MOST_LEVELS)) && says(&nested(MOST_LEVELS + 1)));
        let long = "n".repeat(MOST_NAME_BYTES + 1);
        let text = format!("{{\"{long}\": 1, \"a\": 2}}");
        assert_eq!(figures(&text), expected(&[("a", 2.0)]));
        assert!(says(&text) && says(&format!("{{\"a\": {{\"{}\": 1}}}}", &long[1..])));
    }
}
