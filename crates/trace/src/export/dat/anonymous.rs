//! Replaces the texts in a trace by pseudonyms, so that it can be given away: in ring buffer records and in flashscope's own section.
//!
//! An allow-list decides. In records, numbers stay and texts become pseudonyms; bytes without a known format become zero. In the facts,
//! only texts that are known to contain nothing of the user stay. A pseudonym has the length of its name, because it takes the same place.
//! Equal names have equal pseudonyms, also across traces that are written with the same key.

use crate::formats::dat::own::Own;
use crate::ring::schema::{Field, FieldKind, Layout, Schema, Schemas};
use crate::ring::{Walked, Walker, forget_remains};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// The key of the pseudonyms. Whoever has it can check guessed names.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Derives the key from a file's bytes.
    pub fn of(bytes: &[u8]) -> Key {
        Key(Sha256::digest(bytes).into())
    }
}

/// Names and their pseudonyms; no two names share a pseudonym.
pub(super) struct Anonymizer {
    key: Key,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    pseudonyms: HashMap<Vec<u8>, Vec<u8>>,
    taken: HashSet<Vec<u8>>,
}

/// Directories that every system has (Filesystem Hierarchy Standard 3.0), and those of control groups.
const DIRECTORIES: [&str; 46] = [
    "bin", "boot", "cgroup", "data", "dev", "disk", "docker", "etc", "home", "init.scope", "kubepods",
    "kubepods.slice", "lib", "lib32", "lib64", "local", "log", "lxc", "machine.slice", "mapper", "media", "mnt", "opt",
    "proc", "root", "run", "sbin", "self", "share", "shm", "srv", "sys", "system.slice", "tmp", "user.slice", "usr",
    "var", "block", "cache", "spool", "kernel", "tracing", "fs", "pts", "services", "lxc.payload",
];
/// The kernel's own file systems (fs/, and those that it mounts by itself).
const FILE_SYSTEMS: [&str; 39] = [
    "ext2", "ext3", "ext4", "f2fs", "btrfs", "xfs", "jffs2", "ubifs", "squashfs", "erofs", "cramfs", "romfs", "yaffs",
    "yaffs2", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "iso9660", "udf", "tmpfs", "devtmpfs", "ramfs", "overlay",
    "proc", "sysfs", "devpts", "cgroup", "cgroup2", "tracefs", "debugfs", "mqueue", "securityfs", "pstore", "bpf",
    "configfs", "hugetlbfs", "nfs",
];
/// Mount options that stay if their value is a number, a size or a word of this list.
const OPTION_WORDS: [&str; 60] = [
    "ro", "rw", "nosuid", "nodev", "noexec", "relatime", "noatime", "strictatime", "lazytime", "nodiratime", "sync",
    "dirsync", "discard", "nodiscard", "data", "ordered", "journal", "writeback", "barrier", "nobarrier", "commit",
    "errors", "remount-ro", "continue", "panic", "compr", "compress", "lzo", "zlib", "zstd", "lz4", "none",
    "no_bulk_read", "bulk_read", "chk_data_crc", "no_chk_data_crc", "ubi", "background_gc", "active_logs",
    "fsync_mode", "posix", "strict", "nojournal_checksum", "auto_da_alloc", "noauto_da_alloc", "delalloc",
    "nodelalloc", "stripe", "mode", "size", "nr_inodes", "space_cache", "v2", "ssd", "nossd", "autodefrag", "flush",
    "alloc_mode", "reuse", "on",
];
/// Words in the facts that contain nothing of the user: values of kernel settings and of the agent.
const WORDS: [&str; 52] = [
    "none", "mq-deadline", "kyber", "bfq", "noop", "cfq", "deadline", "[none]", "[mq-deadline]", "[kyber]", "[bfq]",
    "[noop]", "[cfq]", "[deadline]", "write", "back", "through", "mono", "local", "global", "counter", "uptime",
    "perf", "boot", "tai", "mono_raw", "x86-tsc", "stream", "ring", "tracefs", "flashmon", "default", "walk", "seen",
    "auto", "renamed", "deleted", "elsewhere", "again", "metadata", "no_mount", "remote", "not_reachable",
    "out_of_time", "not_looked_for", "x86_64", "aarch64", "armv7l", "riscv64", "mips", "mips64", "i686",
];
/// Text fields of records that give the kind of a request (include/trace/events/block.h).
const KINDS: [&str; 1] = ["rwbs"];
/// Parts of the facts whose texts are all the agent's own (agent/record/groups.c, agent/record/points.c).
const OWN_TEXTS: [&str; 6] = ["absent", "probe_points", "clocks", "groups", "events", "left_out_of"];
/// Facts that no figure depends on.
const LEFT_OUT: [&str; 3] = ["cmdline", "hostname", "nodename"];

impl Anonymizer {
    pub fn new(key: Key) -> Anonymizer {
        Anonymizer { key, known: RefCell::default() }
    }

    /// The pseudonym of any bytes, with the same length.
    fn bytes(&self, name: &[u8]) -> Vec<u8> {
        if name.is_empty() {
            return Vec::new();
        }
        let mut known = self.known.borrow_mut();
        if let Some(pseudonym) = known.pseudonyms.get(name) {
            return pseudonym.clone();
        }
        // Container ids stay hexadecimal, because that is how they are recognised.
        let hexadecimal = name.len() >= 12 && name.iter().all(u8::is_ascii_hexdigit);
        let letters: &[u8] = if hexadecimal { b"0123456789abcdef" } else { b"abcdefghijklmnopqrstuvwxyz234567" };
        // Pseudonyms of short names may collide; each try gives another one.
        let pseudonym = (0_u32..64)
            .map(|attempt| self.letters(name, attempt, letters))
            .find(|pseudonym| !known.taken.contains(pseudonym))
            .unwrap_or_else(|| self.letters(name, 0, letters));
        known.taken.insert(pseudonym.clone());
        known.pseudonyms.insert(name.to_vec(), pseudonym.clone());
        pseudonym
    }

    fn letters(&self, name: &[u8], attempt: u32, letters: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(name.len());
        for block in 0_u32.. {
            let mut hash = Sha256::new();
            hash.update(self.key.0);
            hash.update(attempt.to_le_bytes());
            hash.update(block.to_le_bytes());
            hash.update(name);
            out.extend(hash.finalize().iter().map(|byte| letters[usize::from(*byte) % letters.len()]));
            if out.len() >= name.len() {
                break;
            }
        }
        out.truncate(name.len());
        out
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name.as_bytes())).unwrap_or_default()
    }

    /// Replaces each component of a path. Text that is not a path counts as one component.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(|part| self.part(part)).collect();
        parts.join(&b'/')
    }

    fn part(&self, part: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(part) {
            Ok("" | "." | "..") => part.to_vec(),
            Ok(text) if DIRECTORIES.contains(&text) || is_device(text) => part.to_vec(),
            Ok(text) => {
                // Prefixes and suffixes of systemd units and containers stay, because they identify the kind of a group.
                let ends = [".service", ".scope", ".slice", ".socket", ".mount"];
                let begins = [
                    "docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-", "lxc.payload.", "machine-",
                    "systemd-nspawn@", "session-", "user@", "uid_", "pid_",
                ];
                let end = ends.iter().find(|end| text.ends_with(**end)).map_or("", |end| end);
                let begin = begins.iter().find(|begin| text.starts_with(**begin)).map_or("", |begin| begin);
                match text.len().checked_sub(begin.len() + end.len()) {
                    Some(length) => {
                        let stem = &text[begin.len()..begin.len() + length];
                        [begin.as_bytes(), &self.bytes(stem.as_bytes()), end.as_bytes()].concat()
                    }
                    None => self.bytes(part),
                }
            }
            Err(_) => self.bytes(part),
        }
    }

    fn path_text(&self, path: &str) -> String {
        String::from_utf8(self.path(path.as_bytes())).unwrap_or_default()
    }

    /// A pseudonym for the name of a thread or process. Names of the kernel's own threads stay, because they tell the kind of work.
    pub fn task(&self, name: &str) -> String {
        if is_kernels(name) { name.to_owned() } else { self.text(name) }
    }

    /// A pseudonym for the name of another tool's buffer.
    pub fn buffer<'n>(&self, name: &'n str) -> std::borrow::Cow<'n, str> {
        let own = name.is_empty() || name == crate::formats::recorded::TASKS_BUFFER || name == "requests";
        if own { name.into() } else { self.text(name).into() }
    }

    // --- records ---------------------------------------------------------------

    /// Replaces the texts of all records in a sub-buffer, in place.
    pub fn page(&self, layout: &Layout, schemas: &Schemas, page: &mut [u8]) {
        let Some(mut walker) = Walker::start(layout, page) else { return page.fill(0) };
        let mut records = Vec::new();
        while let Walked::Record { begin, end, .. } = walker.next(layout, page) {
            records.push((begin, end));
        }
        for (begin, end) in records {
            let record = &page[begin..end];
            let id = layout.endian.u16(record, 0).unwrap_or(u16::MAX);
            let clean = match schemas.get(id) {
                Some(schema) => self.record(schema, record),
                None => unknown(record),
            };
            page[begin..end].copy_from_slice(&clean);
        }
        forget_remains(layout, page);
    }

    fn record(&self, schema: &Schema, record: &[u8]) -> Vec<u8> {
        let mut clean = vec![0; record.len()];
        for field in &schema.fields {
            self.field(schema, field, record, &mut clean);
        }
        clean
    }

    fn field(&self, schema: &Schema, field: &Field, record: &[u8], clean: &mut [u8]) {
        let at = field.offset as usize;
        let end = if field.size == 0 { record.len() } else { at.saturating_add(field.size as usize).min(record.len()) };
        let Some(whole) = record.get(at..end) else { return };
        match field.kind {
            FieldKind::Int => clean[at..end].copy_from_slice(whole),
            // Arrays of one-byte elements may be text or codes, not numbers.
            FieldKind::Array { element, .. } if element > 1 => clean[at..end].copy_from_slice(whole),
            FieldKind::Text => put(clean, at, &self.of_field(field, crate::bytes::until_nul(whole))),
            FieldKind::Dynamic { element, text, relative } => {
                clean[at..end].copy_from_slice(whole);
                let Some(word) = schema.endian.u32(record, at) else { return };
                let (length, offset) = ((word >> 16) as usize, (word & 0xffff) as usize);
                let from = if relative { end.saturating_add(offset) } else { offset };
                let to = from.saturating_add(length);
                let Some(content) = record.get(from..to) else { return };
                if text {
                    put(clean, from, &self.of_field(field, crate::bytes::until_nul(content)));
                } else if element > 1 {
                    clean[from..to].copy_from_slice(content);
                }
            }
            FieldKind::Array { .. } | FieldKind::Opaque => {}
        }
    }

    fn of_field(&self, field: &Field, text: &[u8]) -> Vec<u8> {
        let is_task = field.name.contains("comm");
        match std::str::from_utf8(text) {
            Ok(text) if is_kernels(text) => text.into(),
            // As in the list of tasks: one task has one pseudonym.
            _ if is_task => self.bytes(text),
            Ok(text) if KINDS.contains(&field.name.as_str()) && text.bytes().all(|b| b.is_ascii_uppercase()) => {
                text.into()
            }
            Ok(text) if is_device(text) || field.name == "name" && is_device_number(text) => text.into(),
            _ => self.path(text),
        }
    }

    // --- our own section --------------------------------------------------------

    pub fn own(&self, own: &mut Own) {
        self.value("", &mut own.facts);
        self.value("", &mut own.stats);
        own.tasks.iter_mut().for_each(|(_, name)| *name = self.task(name));
        own.phases.phases.iter_mut().for_each(|phase| phase.name = self.text(&phase.name));
        own.phases.marks.iter_mut().for_each(|mark| mark.name = self.text(&mark.name));
    }

    /// `key`: the key of the object, or of the array, that holds the value.
    fn value(&self, key: &str, value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| self.value(key, one)),
            Value::Object(all) => {
                let is_name = matches!(key, "processes" | "packages" | "threads");
                for (inner, one) in all.iter_mut() {
                    match (inner.as_str(), &one) {
                        (name, _) if OWN_TEXTS.contains(&name) && key != "names" => {}
                        ("version", Value::String(_)) if key == "kernel" => *one = Value::String(String::new()),
                        ("version", Value::String(text)) if is_number(text) => {}
                        (name, Value::String(_)) if LEFT_OUT.contains(&name) => *one = Value::String(String::new()),
                        ("name", Value::String(text)) if is_name => *one = self.task(text).into(),
                        ("options", Value::String(text)) => *one = self.options(text).into(),
                        ("release", Value::String(text)) => *one = release(text).into(),
                        ("type", Value::String(text)) if FILE_SYSTEMS.contains(&text.as_str()) => {}
                        (_, Value::String(text)) => *one = self.fact(inner, text).into(),
                        _ => self.value(inner, one),
                    }
                }
            }
            Value::String(text) => *value = self.fact(key, text).into(),
            _ => {}
        }
    }

    fn fact(&self, key: &str, text: &str) -> String {
        if key == "comm" {
            return self.task(text);
        }
        if matches!(key, "command" | "reason") {
            return text.split(' ').map(|word| self.path_text(word)).collect::<Vec<_>>().join(" ");
        }
        let names = matches!(
            key,
            "name" | "path" | "was" | "or" | "layer" | "point" | "root" | "file" | "cgroup" | "model" | "card" | "dm"
        );
        let known = || text.split(' ').all(|word| WORDS.contains(&word));
        if is_device(text) || is_device_number(text) || (!names && known()) {
            return text.to_owned();
        }
        self.path_text(text)
    }

    fn options(&self, options: &str) -> String {
        let word =
            |word: &str| OPTION_WORDS.contains(&word) || !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        let one = |option: &str| match option.split_once('=') {
            Some((name, value)) if word(name) && (word(value) || is_size(value)) => option.to_owned(),
            Some((name, value)) if word(name) => format!("{name}={}", self.path_text(value)),
            Some((name, value)) => format!("{}={}", self.text(name), self.path_text(value)),
            None if word(option) => option.to_owned(),
            None => self.path_text(option),
        };
        options.split(',').map(one).collect::<Vec<_>>().join(",")
    }
}

/// Keeps only kind and task of a record without a format.
fn unknown(record: &[u8]) -> Vec<u8> {
    let mut clean = vec![0; record.len()];
    let kept = record.len().min(8);
    clean[..kept].copy_from_slice(&record[..kept]);
    clean
}

fn put(clean: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = clean.get_mut(at..at.saturating_add(bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

/// `254:0`. Other numbers may be a serial number, a label, a date or an address.
fn is_device_number(text: &str) -> bool {
    let digits = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once(':').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// Numbers with separators, as in versions: `6.1`, `1.5-3`.
fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-' | b',' | b'+'))
}

/// `4k`, `0755`, `12334492k`
fn is_size(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'k' | b'K' | b'M' | b'G' | b'%'))
}

/// `6.18.44-fc-v657`: the local version may contain any text.
fn release(text: &str) -> String {
    text.split('-').next().filter(|version| is_number(version)).unwrap_or("0.0").to_owned()
}

/// The kernel's own device names with their numbers, and `mtd-0` and `ubifs_0_1` of its writeback.
fn is_device(text: &str) -> bool {
    let text = text.strip_prefix("/dev/").unwrap_or(text);
    const KINDS: [&str; 24] = [
        "loop", "ram", "zram", "dm-", "md", "mmcblk", "mtdblock", "mtd-", "mtd", "ubiblock", "ubifs_", "ubi", "nvme",
        "sr", "fd", "nbd", "nullb", "pmem", "sd", "vd", "hd", "xvd", "bdi", "mmc",
    ];
    KINDS.iter().filter_map(|kind| Some((*kind, text.strip_prefix(kind)?))).any(|(kind, rest)| {
        let letters = matches!(kind, "sd" | "vd" | "hd" | "xvd");
        let rest = rest.strip_suffix("ro").filter(|_| kind == "mtd").unwrap_or(rest);
        let digits = |text: &str| !text.is_empty() && text.len() < 6 && text.bytes().all(|b| b.is_ascii_digit());
        if letters {
            let drive = rest.trim_end_matches(|c: char| c.is_ascii_digit());
            return matches!(drive.len(), 1 | 2) && drive.bytes().all(|b| b.is_ascii_lowercase()) && rest.len() < 6;
        }
        rest.split(['p', 'n', 'c', '_', ':']).all(digits)
            || rest.split_once("boot").or_else(|| rest.split_once("gp")).is_some_and(|(a, b)| digits(a) && digits(b))
            || rest.strip_suffix("rpmb").is_some_and(digits)
    })
}

/// Names of the kernel's own threads, if the kernel made the whole name.
fn is_kernels(name: &str) -> bool {
    const WHOLE: [&str; 17] = [
        "swapper", "kthreadd", "ksoftirqd", "kswapd", "kcompactd", "khugepaged", "kdevtmpfs", "kblockd", "writeback",
        "oom_reaper", "rcu_sched", "rcu_preempt", "migration", "cpuhp", "kauditd", "khungtaskd", "mmcqd",
    ];
    const WITH_DEVICE: [&str; 9] = [
        "jbd2/", "f2fs_gc-", "f2fs_flush-", "f2fs_discard-", "f2fs_ckpt-", "jffs2_gcd_", "ubi_bgt", "ubifs_bgt", "irq/",
    ];
    let numbers = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'/' | b':' | b'-' | b'_'));
    if let Some(rest) = name.strip_prefix("kworker/") {
        // kworker/u8:3-flush-254:0, kworker/0:1H+kblockd
        let (number, work) = rest.split_at(rest.find(['-', '+']).unwrap_or(rest.len()));
        let work = work.get(1..).unwrap_or_default();
        let plain = number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'u' | b':' | b'H' | b'R'));
        let known = |work: &str| {
            work.is_empty()
                || work.strip_prefix("flush-").is_some_and(|device| numbers(device) || is_device(device))
                || matches!(
                    work,
                    "kblockd"
                        | "events"
                        | "writeback"
                        | "mmc_complete"
                        | "events_unbound"
                        | "loop"
                        | "ext4-rsv-conversion"
                )
        };
        return plain && known(work);
    }
    WHOLE.iter().any(|whole| name.strip_prefix(whole).is_some_and(numbers))
        || WITH_DEVICE.iter().any(|begin| {
            name.strip_prefix(begin).is_some_and(|rest| {
                let device = rest.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
                numbers(rest) || is_device(rest) || is_device(device)
            })
        })
        || name.strip_prefix("loop").is_some_and(|number| !number.is_empty() && numbers(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Anonymizer {
        Anonymizer::new(Key::of(b"0123456789abcdef"))
    }

    /// Of every string in facts, under each key that an agent writes and under an unknown one, only what the kernel named stays.
    #[test]
    fn numbers_that_name_something_are_names() {
        let keys = [
            "name", "path", "was", "or", "layer", "point", "root", "file", "cgroup", "model", "card", "dm", "volume",
            "source", "target", "label", "serial", "disk", "comm", "command", "reason", "backing_file", "boot_id",
            "uuid", "instance", "group", "devices", "cgroups", "triggers", "hostname", "unknown",
        ];
        let canaries = ["20240817", "1234-5678", "192.168.1.7", "2024.08.17", "0171+555123", "77", "12:34:56", "555:"];
        for key in keys {
            for canary in canaries {
                let mut facts = serde_json::json!({ key: canary, "one": { key: [canary] }, "more": [{ key: canary }] });
                names().value("", &mut facts);
                assert!(!facts.to_string().contains(canary), "{key}: {canary}: {facts}");
            }
        }
        let mut kept =
            serde_json::json!({ "name": "254:0", "device": "8:1", "release": "6.1.0-18", "devices": ["sda"] });
        names().value("", &mut kept);
        assert_eq!(kept["name"], "254:0", "of writeback");
        assert_eq!((&kept["device"], &kept["release"]), (&"8:1".into(), &"6.1.0".into()));
        assert_eq!(kept["devices"][0], "sda");
    }

    #[test]
    fn a_task_has_one_pseudonym_in_records_and_in_facts() {
        let field = |name: &str| Field {
            name: name.to_owned(),
            type_text: "char[16]".to_owned(),
            offset: 0,
            size: 16,
            signed: false,
            kind: FieldKind::Text,
            common: false,
        };
        for comm in ["kworker/u8:3-events_power", "docker", "backup.service", "a/b", "20240817"] {
            let names = names();
            let task = names.task(comm);
            assert_ne!(task, comm);
            for in_record in ["comm", "prev_comm", "next_comm"] {
                assert_eq!(names.of_field(&field(in_record), comm.as_bytes()), task.as_bytes(), "{comm}");
            }
            assert_eq!(names.fact("comm", comm), task);
        }
        assert_eq!(names().of_field(&field("comm"), b"kworker/0:1"), b"kworker/0:1");
        assert_eq!(names().of_field(&field("name"), b"254:0"), b"254:0");
        for text in ["2024-08-17", "0171555123", "10.0.0.7"] {
            assert_ne!(names().of_field(&field("filename"), text.as_bytes()), text.as_bytes());
            assert_ne!(names().of_field(&field("name"), text.as_bytes()), text.as_bytes());
        }
    }
}
