//! A figure, or the reason why this trace does not have it.
//!
//! A figure needs certain events. Where the trace or the kernel lacks them, the result is *unknown*, with the missing event or field
//! and a way to record it. It is never 0, a percentage or a guess. The type makes each result carry that case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a figure is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
pub struct Unknown {
    /// The event or field that is missing, and what follows: "the trace has no block_bio_queue: queueing is unknown".
    #[serde(rename = "unknown")]
    pub missing: String,
    /// What to type or change so that the next recording has it; empty where nothing helps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Unknown {
    pub fn new(missing: impl Into<String>, next: impl Into<String>) -> Unknown {
        Unknown { missing: missing.into(), next: next.into() }
    }
}

/// In JSON the value itself, or `{"unknown": "…", "next": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(untagged)]
pub enum Evidence<T> {
    // First, because where `T` is a map, serde would read any value as one.
    Unknown(Unknown),
    Known(T),
}

impl<T> Evidence<T> {
    pub fn unknown(missing: impl Into<String>, next: impl Into<String>) -> Evidence<T> {
        Evidence::Unknown(Unknown::new(missing, next))
    }

    /// The value; `None` where it is unknown.
    pub fn known(&self) -> Option<&T> {
        match self {
            Evidence::Known(value) => Some(value),
            Evidence::Unknown(_) => None,
        }
    }

    pub fn as_ref(&self) -> Evidence<&T> {
        match self {
            Evidence::Known(value) => Evidence::Known(value),
            Evidence::Unknown(why) => Evidence::Unknown(why.clone()),
        }
    }

    pub fn known_mut(&mut self) -> Option<&mut T> {
        match self {
            Evidence::Known(value) => Some(value),
            Evidence::Unknown(_) => None,
        }
    }

    /// The reason; `None` where the value is known.
    pub fn why(&self) -> Option<&Unknown> {
        match self {
            Evidence::Known(_) => None,
            Evidence::Unknown(why) => Some(why),
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Evidence<U> {
        match self {
            Evidence::Known(value) => Evidence::Known(f(value)),
            Evidence::Unknown(why) => Evidence::Unknown(why),
        }
    }
}

impl<T> Evidence<Evidence<T>> {
    /// Unknown for the outer reason, else for the inner one.
    pub fn flatten(self) -> Evidence<T> {
        match self {
            Evidence::Known(inner) => inner,
            Evidence::Unknown(why) => Evidence::Unknown(why),
        }
    }
}

impl<T: Default> Default for Evidence<T> {
    fn default() -> Evidence<T> {
        Evidence::Known(T::default())
    }
}

impl<T> From<T> for Evidence<T> {
    fn from(value: T) -> Evidence<T> {
        Evidence::Known(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_value_or_the_reason() {
        let known: Evidence<u64> = 0.into();
        let unknown: Evidence<u64> = Evidence::unknown("no completions in the trace", "");
        for (figure, want) in [(known, "0"), (unknown, r#"{"unknown":"no completions in the trace"}"#)] {
            let json = serde_json::to_string(&figure).expect("a figure is JSON");
            assert_eq!(json, want);
            assert_eq!(serde_json::from_str::<Evidence<u64>>(&json).expect("its own JSON"), figure);
        }
    }
}
