//! Published statements that no study here can measure, each with the reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::{DefinitionError, syntax};

/// The contents of such a file.
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
    /// What would be needed, and what exists instead.
    pub reason: String,
}

impl NotMeasured {
    /// `name`: the text's name in errors.
    pub fn parse(name: &str, text: &str) -> Result<NotMeasured, DefinitionError> {
        toml::from_str(text).map_err(|error| syntax(name, text, &error))
    }
}
