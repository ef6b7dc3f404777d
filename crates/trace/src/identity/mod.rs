//! Names of what events give as numbers: files, devices, processes and the applications that they belong to.
//!
//! The agent sends them as `FS_NAMES` (docs/reference/agent-protocol.md, "Names"); they travel in the facts of a trace, under `names`.
//! All text in them is untrusted: who prints it escapes it.

mod apps;
mod devices;
mod files;
mod processes;

pub use apps::{App, AppKind};
pub use devices::{DeviceName, DeviceNames};
pub use files::{FileName, FileNames, NAMELESS, NameState, file_label, own_data};
pub use processes::Process;
pub(crate) use processes::{ProcessReader, Processes};

use serde_json::{Map, Value};

/// Arrays of `FS_NAMES` frames, put together; what is no object of arrays is left out. `None`: there is nothing.
pub(crate) fn merged(frames: &[String]) -> Option<Value> {
    let mut all = Map::new();
    for frame in frames {
        let Ok(Value::Object(object)) = serde_json::from_str(frame) else { continue };
        for (key, value) in object {
            let Value::Array(rows) = value else { continue };
            match all.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(there) => there.extend(rows),
                _ => unreachable!("arrays alone are put in"),
            }
        }
    }
    (!all.is_empty()).then_some(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_array_are_one() {
        let frames =
            [r#"{"files":[{"inode":1}]}"#, r#"{"files":[{"inode":2}],"devices":[]}"#, "7", "{", r#"{"files":3}"#];
        let all = merged(&frames.map(str::to_owned)).unwrap();
        assert_eq!(all["files"].as_array().unwrap().len(), 2);
        assert_eq!(merged(&[]), None);
    }
}
