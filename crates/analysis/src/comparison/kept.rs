//! Figures of a kept JSON result: a report is read into its own types, any other result as numbers.
//!
//! Memory is bounded by the figures that are compared, not by the document: values are counted before any is kept, and of a document
//! that is no report only the figures are kept.

use super::change::RunFigures;
use super::results;
use crate::block::BlockReport;
use crate::flash_report::FlashReport;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;

/// Most values of a document: each may take 64 bytes while it is read.
pub const MOST_VALUES: u64 = 4_000_000;

/// Why a document is not compared.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("a JSON result of more than {MOST_VALUES} values")]
    TooManyValues,
    #[error("a report of schema {schema}, which this version does not read ({source}); make it again from its trace")]
    OtherSchema { schema: u64, source: serde_json::Error },
    #[error(
        "a report whose `schema` (the version of its form) is missing or no whole number; make it again from its trace"
    )]
    NoSchema,
    #[error("a report in JSON that cannot be read ({source}); make it again from its trace")]
    Damaged { source: serde_json::Error },
}

/// The figures of a JSON document; `None` where the text is no JSON. A report that is cut off, or has a number out of range (`1e999`),
/// is an error of its own.
pub fn run_of_json(title: &str, text: &[u8]) -> Result<Option<RunFigures>, KeptError> {
    let mut look = Look::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Counted(&mut look, Place::Top).deserialize(&mut reader);
    if look.values > MOST_VALUES {
        return Err(KeptError::TooManyValues);
    }
    if let Err(source) = read {
        let is_report = look.schema.is_some() || look.stages || look.counts && look.by_task;
        return if is_report { Err(KeptError::Damaged { source }) } else { Ok(None) };
    }
    if reader.end().is_err() {
        return Ok(None);
    }
    let other = |source| match look.schema {
        Some(schema) => KeptError::OtherSchema { schema, source },
        None => KeptError::NoSchema,
    };
    Ok(Some(match look {
        Look { stages: true, .. } => RunFigures::of_block(&serde_json::from_slice::<BlockReport>(text).map_err(other)?),
        Look { counts: true, by_task: true, .. } => {
            RunFigures::of_flash(&serde_json::from_slice::<FlashReport>(text).map_err(other)?)
        }
        _ => results::of_json(title, text),
    }))
}

/// The members by which the kind of document is recognised.
#[derive(Default)]
struct Look {
    values: u64,
    schema: Option<u64>,
    /// `block.stages` and `counts` are objects, `by_task` is a list.
    stages: bool,
    counts: bool,
    by_task: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Block,
    Stages,
    Counts,
    ByTask,
    Schema,
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Member {
    Block,
    Stages,
    Counts,
    ByTask,
    Schema,
    #[serde(other)]
    Other,
}

/// Counts a value and those below it, and keeps nothing.
struct Counted<'a>(&'a mut Look, Place);

impl Counted<'_> {
    fn count<E: de::Error>(&mut self) -> Result<(), E> {
        self.0.values += 1;
        if self.0.values > MOST_VALUES { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_unit<E: de::Error>(mut self) -> Result<(), E> {
        self.count()
    }

    fn visit_bool<E: de::Error>(mut self, _: bool) -> Result<(), E> {
        self.count()
    }

    fn visit_u64<E: de::Error>(mut self, number: u64) -> Result<(), E> {
        if self.1 == Place::Schema {
            self.0.schema = Some(number);
        }
        self.count()
    }

    fn visit_i64<E: de::Error>(mut self, _: i64) -> Result<(), E> {
        self.count()
    }

    fn visit_f64<E: de::Error>(mut self, _: f64) -> Result<(), E> {
        self.count()
    }

    fn visit_str<E: de::Error>(mut self, _: &str) -> Result<(), E> {
        self.count()
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.count()?;
        self.0.by_task |= self.1 == Place::ByTask;
        while list.next_element_seed(Counted(self.0, Place::Other))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.count()?;
        self.0.stages |= self.1 == Place::Stages;
        self.0.counts |= self.1 == Place::Counts;
        if !matches!(self.1, Place::Top | Place::Block) {
            while members.next_key::<IgnoredAny>()?.is_some() {
                members.next_value_seed(Counted(self.0, Place::Other))?;
            }
            return Ok(());
        }
        while let Some(member) = members.next_key()? {
            let place = match (self.1, member) {
                (Place::Top, Member::Block) => Place::Block,
                (Place::Top, Member::Counts) => Place::Counts,
                (Place::Top, Member::ByTask) => Place::ByTask,
                (Place::Top, Member::Schema) => Place::Schema,
                (Place::Block, Member::Stages) => Place::Stages,
                _ => Place::Other,
            };
            members.next_value_seed(Counted(self.0, place))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_a_report_by_what_it_has_else_any_result() {
        let run = |text: &str| run_of_json("r", text.as_bytes());
        assert!(run("{\"a\": 1} {").unwrap().is_none() && run("{").unwrap().is_none());
        assert_eq!(run("{\"counts\": {\"n\": 1}, \"by_task\": {}}").unwrap().unwrap().figures.len(), 1);
        for (text, schema) in [
            ("{\"schema\": 7, \"block\": {\"stages\": {}}}", 7),
            ("{\"counts\": {}, \"by_task\": [], \"schema\": 99}", 99),
        ] {
            let error = run(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a report of schema {schema}, which this version")), "{error}");
        }
    }

    #[test]
    fn a_report_without_a_number_of_its_schema_is_of_no_schema() {
        for schema in ["", "\"schema\": \"5\", ", "\"schema\": null, ", "\"schema\": -1, ", "\"schema\": 1.5, "] {
            for rest in ["\"block\": {\"stages\": {}}", "\"counts\": {}, \"by_task\": []"] {
                let error = run_of_json("r", format!("{{{schema}{rest}}}").as_bytes()).unwrap_err().to_string();
                assert!(error.starts_with("a report whose `schema`") && error.ends_with("from its trace"), "{error}");
            }
        }
    }

    #[test]
    fn a_damaged_report_is_not_called_anything_else() {
        for (text, why) in [
            ("{\"schema\": 7, \"block\": {\"stages\": {\"n\": 1e999}}}", "number out of range at line 1"),
            ("{\"schema\": 7, \"block\": {\"stages\": {\"n\": 1", "EOF while parsing"),
            ("{\"block\": {\"stages\": {\"n\": NaN}}}", "expected value"),
        ] {
            let error = run_of_json("r", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("a report in JSON that cannot be read") && error.contains(why), "{error}");
        }
    }

    /// Each is two bytes of text, and would be many of memory.
    #[test]
    fn a_document_of_too_many_values_is_refused() {
        let text = format!("{{\"a\": [{}0]}}", "0,".repeat(MOST_VALUES as usize));
        assert!(matches!(run_of_json("r", text.as_bytes()), Err(KeptError::TooManyValues)));
    }
}
