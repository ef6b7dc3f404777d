//! Published statements that no study here can hold figures against, each with the reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::{DefinitionError, syntax};

/// What such a file holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotMeasured {
    pub name: String,
    pub not_measured: Vec<NotMeasurable>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotMeasurable {
    pub id: String,
    /// Paper and section, table or figure.
    pub source: String,
    pub statement: String,
    /// What would be needed, and what there is instead.
    pub reason: String,
}

impl NotMeasured {
    /// `name` is what errors call the text by.
    pub fn parse(name: &str, text: &str) -> Result<NotMeasured, DefinitionError> {
        toml::from_str(text).map_err(|error| syntax(name, text, &error))
    }
}
