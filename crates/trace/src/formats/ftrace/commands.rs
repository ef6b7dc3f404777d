//! Parses lines of drivers' commands to the fields of the kernel's formats (`crate::decode::commands`).
//!
//! Sources: `include/trace/events/{ufs,mmc,scsi}.h` and `drivers/nvme/host/trace.[ch]` (Linux 4.9 to 6.18).

use super::fields::{add, pairs, push, value_of};
use crate::decode::commands::Step;
use crate::formats::parsed::{Parsed, Value};

/// Opcodes of NVMe's commands for data, by the name in a line.
const NVME: [(&[u8], u64); 8] = [
    (b"nvme_cmd_flush", 0x00),
    (b"nvme_cmd_write", 0x01),
    (b"nvme_cmd_read", 0x02),
    (b"nvme_cmd_compare", 0x05),
    (b"nvme_cmd_write_zeroes", 0x08),
    (b"nvme_cmd_dsm", 0x09),
    (b"nvme_cmd_zone_mgmt_send", 0x79),
    (b"nvme_cmd_zone_append", 0x7d),
];
const OTHER: u64 = 0xff;

pub(super) fn system(name: &str) -> Option<&'static str> {
    Some(match Step::of(name)? {
        Step::Ufs => "ufs",
        Step::MmcStart | Step::MmcDone => "mmc",
        Step::NvmeSetup | Step::NvmeComplete => "nvme",
        Step::ScsiStart | Step::ScsiDone => "scsi",
    })
}

/// Reads a line of such an event. Returns false for a line that is cut.
pub(super) fn read<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(step) = Step::of(&out.name) else { return false };
    // Raw fields, as `trace-cmd report -R` prints them, lack what a line has.
    let has_form = match step {
        Step::Ufs => ufs(out, rest),
        Step::MmcStart | Step::MmcDone => mmc(out, rest),
        Step::NvmeSetup | Step::NvmeComplete => nvme(out, rest),
        Step::ScsiStart | Step::ScsiDone => false,
    };
    if !has_form {
        out.fields.clear();
        pairs(out, rest);
    }
    // The last field that is used.
    let has = |name: &str| out.fields.iter().any(|(key, _)| *key == name);
    match step {
        Step::Ufs => has("opcode"),
        Step::MmcStart => has("data_flags"),
        Step::MmcDone => has("data_err"),
        Step::NvmeSetup => has("opcode") && (!has_form || rest.ends_with(b")")),
        Step::NvmeComplete => has("status"),
        Step::ScsiStart => has("raw") && rest.ends_with(b")"),
        Step::ScsiDone => has("status") && rest.ends_with(b")") || has("result") && has("cmnd") && !has("raw"),
    }
}

fn before<'a>(text: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = super::fields::find(text, end)?;
    Some((&text[..at], &text[at + end.len()..]))
}

/// `send_req: 1d84000.ufshc: tag: 5, DB: 0x0, size: 4096, IS: 0, LBA: 100, opcode: 0x28 (READ_10), group_id: 0x0, hwq_id: 1`
fn ufs<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some((step, rest)) = before(rest, b": ") else { return false };
    add(out, "str", Value::Text(step));
    let rest = match before(rest, b": tag: ") {
        Some((device, tag)) => {
            add(out, "dev_name", Value::Text(device));
            &rest[rest.len() - tag.len() - b"tag: ".len()..]
        }
        None => rest,
    };
    for part in rest.split(|&b| b == b',') {
        let Some((key, value)) = before(part.trim_ascii(), b": ") else { continue };
        let key = match key {
            b"tag" => "tag",
            b"DB" => "doorbell",
            b"size" => "transfer_len",
            b"IS" => "intr",
            b"LBA" => "lba",
            b"opcode" => "opcode",
            b"group_id" => "group_id",
            b"hwq_id" => "hwq_id",
            _ => continue,
        };
        push(out, key, value.split(|&b| b == b' ').next().unwrap_or(value));
    }
    true
}

/// `mmc0: start struct mmc_request[c669d954]: cmd_opcode=25 cmd_arg=0x400100 …`
fn mmc<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some((host, rest)) = before(rest, b": ") else { return false };
    let Some((pointer, rest)) = before(rest, b"mmc_request[").and_then(|(_, rest)| before(rest, b"]")) else {
        return false;
    };
    let pointer = std::str::from_utf8(pointer).unwrap_or("").trim_start_matches("0x");
    let Ok(pointer) = u64::from_str_radix(pointer, 16) else { return false };
    add(out, "name", Value::Text(host));
    add(out, "mrq", Value::Unsigned(pointer));
    pairs(out, rest);
    true
}

/// `nvme0: disk=nvme0n1, qid=1, cmdid=216, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_read slba=0, len=7, ctrl=0x0, …)`
fn nvme<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some((controller, rest)) = before(rest, b": ") else { return false };
    let Some(controller) = controller.strip_prefix(b"nvme") else { return false };
    let Value::Unsigned(number) = value_of(controller) else { return false };
    add(out, "ctrl_id", Value::Unsigned(number));
    for word in rest.split(|b| matches!(b, b',' | b' ' | b'(' | b')')) {
        if let Some(&(_, opcode)) = NVME.iter().find(|(name, _)| *name == word) {
            add(out, "opcode", Value::Unsigned(opcode));
        } else if word.starts_with(b"nvme_") {
            add(out, "opcode", Value::Unsigned(OTHER));
        }
        let Some((key, value)) = before(word, b"=") else { continue };
        let key = match key {
            b"disk" => "disk",
            b"qid" => "qid",
            b"cmdid" => "cid",
            b"nsid" => "nsid",
            b"slba" => "slba",
            b"len" => "length",
            b"ctrl" => "ctrl",
            b"res" => "result",
            b"retries" => "retries",
            b"status" => "status",
            _ => continue,
        };
        if !value.is_empty() {
            push(out, key, value);
        }
    }
    true
}
