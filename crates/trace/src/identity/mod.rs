//! Names for the numbers in events: files, devices, processes and their applications.
//!
//! The agent sends them as `FS_NAMES` (docs/reference/agent-protocol.md, "Names"); a trace has them in its facts, under `names`. All text
//! in them is untrusted: escape it before printing.

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

/// Joins the arrays of all `FS_NAMES` frames; anything but objects of arrays is left out. `None` if nothing is left.
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
