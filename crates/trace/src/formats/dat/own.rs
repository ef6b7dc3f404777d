//! flashscope's own section in a trace.dat, between the header and the CPU data, where trace-cmd has padding and never looks. For an option
//! of our own, `trace-cmd report` would print "unknown option" on every file.

use crate::events::phase::Phases;
use crate::ids::TaskId;
use crate::losses::Losses;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and version of the section.
pub(crate) const MAGIC: &[u8; 16] = b"flashscope\0\0\0\0\0\x01";
/// Magic, length of the JSON text (u64, little-endian), its CRC-32 (u32, little-endian).
pub(crate) const HEADER: usize = 16 + 8 + 4;
/// Longest JSON text that is read.
pub(crate) const MAX: u64 = 16 << 20;
/// Largest number of values in the JSON text; a phase has eleven, and there are at most 20,000 phases.
const MAX_VALUES: usize = 500_000;

/// The section's JSON object.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Own {
    pub facts: Value,
    pub stats: Value,
    #[serde(flatten)]
    pub phases: Phases,
    /// Losses before the ring buffer data reached this file.
    pub losses: Losses,
    /// Tasks at the beginning of the recording: thread ids and names.
    pub tasks: Vec<(TaskId, String)>,
    pub clock: String,
}

pub(crate) fn encode(own: &Own) -> serde_json::Result<Vec<u8>> {
    let json = serde_json::to_vec(own)?;
    let mut out = Vec::with_capacity(HEADER + json.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(json.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
    out.extend_from_slice(&json);
    Ok(out)
}

/// Length and CRC of the JSON text; `None` if this is not our section.
pub(crate) fn header(bytes: &[u8]) -> Option<(u64, u32)> {
    let le = crate::bytes::Endian::Little;
    if bytes.get(..16)? != MAGIC {
        return None;
    }
    Some((le.u64(bytes, 16)?, le.u32(bytes, 24)?))
}

pub(crate) fn decode(json: &[u8], crc: u32) -> Option<Own> {
    if crc32fast::hash(json) != crc || !crate::bytes::has_few_values(json, MAX_VALUES) {
        return None;
    }
    serde_json::from_slice(json).ok()
}
