//! Finds the files of a trace by a name: one per-CPU file, their common name, their directory, a stream or a pipe.

use super::lane::Part;
use super::record::{Raw, kind};
use super::{Log, decode, scan, version_of};
use crate::bytes::Endian;
use crate::error::Error;
use crate::formats::packed::{self, Packing, Unpacked, nameless};
use crate::formats::{Head, begins_as_known};
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses};
use crate::source::Opened;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest number of CPUs without a file that are listed.
const MAX_ABSENT: usize = 64;
/// Largest number of per-CPU files of one trace, over all devices.
const MAX_FILES: usize = 1024;

/// The meaning of a name.
pub(crate) enum Found {
    /// Per-CPU files, by name.
    Parts(Vec<PathBuf>),
    /// The contents of a pipe, in a nameless file.
    Spooled(Input),
    /// One file, of any format.
    File,
}

/// Finds the parts that belong to `path`. Reads a pipe (`-` is standard input) to its end.
pub(crate) fn find(path: &Path) -> Result<Found, Error> {
    if path == Path::new("-") {
        return spool(path, io::stdin().lock()).map(Found::Spooled);
    }
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let parts = parts_of(path)?;
            return if parts.is_empty() { Err(Error::io(path, "open", e)) } else { Ok(Found::Parts(parts)) };
        }
        Err(e) => return Err(Error::io(path, "open", e)),
    };
    if meta.is_dir() {
        let parts = parts_in(path, None)?;
        if parts.is_empty() {
            return Err(Error::Unrecognised {
                path: path.to_path_buf(),
                hint: match holds_ctf(path) {
                    true => {
                        "it looks like a CTF trace of LTTng, which is not read; record with `flashscope record --events block`"
                    }
                    false => {
                        "a directory is read where it holds blktrace's files (NAME.blktrace.0 and so on); name a file"
                    }
                },
            });
        }
        return Ok(Found::Parts(parts));
    }
    if meta.file_type().is_fifo() || meta.file_type().is_char_device() || meta.file_type().is_socket() {
        let file = flashscope_output::open_input(path).map_err(|e| Error::io(path, "open", e))?;
        return spool(path, file).map(Found::Spooled);
    }
    match split_name(path) {
        Some((base, _)) => Ok(Found::Parts(parts_of(&base)?)),
        None => Ok(Found::File),
    }
}

/// An LTTng directory has `metadata` in it, or in its subdirectories `kernel` and `ust`.
fn holds_ctf(path: &Path) -> bool {
    ["metadata", "kernel/metadata", "ust/metadata"].iter().any(|name| path.join(name).is_file())
}

/// `sda.blktrace.3` is part 3 of `sda`.
fn split_name(path: &Path) -> Option<(PathBuf, u32)> {
    let name = path.file_name()?.to_str()?;
    let (base, number) = name.rsplit_once(".blktrace.")?;
    (!base.is_empty()).then_some(())?;
    let plain = [".gz", ".xz", ".zst"].iter().find_map(|packed| number.strip_suffix(packed)).unwrap_or(number);
    Some((path.with_file_name(base), plain.parse().ok()?))
}

fn parts_of(base: &Path) -> Result<Vec<PathBuf>, Error> {
    let dir = match base.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let Some(name) = base.file_name().and_then(|n| n.to_str()) else { return Ok(Vec::new()) };
    match parts_in(dir, Some(name)) {
        Err(Error::Io { .. }) if !dir.is_dir() => Ok(Vec::new()),
        other => other,
    }
}

/// The per-CPU files in a directory, with one common name or with any.
fn parts_in(dir: &Path, name: Option<&str>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| Error::io(dir, "read", e))? {
        let path = entry.map_err(|e| Error::io(dir, "read", e))?.path();
        if let Some((base, number)) = split_name(&path)
            && name.is_none_or(|name| base.file_name().is_some_and(|b| b == name))
            && path.is_file()
        {
            if found.len() == MAX_FILES {
                return Err(Error::Unsupported {
                    path: dir.to_path_buf(),
                    what: format!("more than {MAX_FILES} files of blktrace; name one device's"),
                });
            }
            found.push((base, number, path));
        }
    }
    found.sort();
    // A file and its packed copy count once.
    found.dedup_by(|later, kept| (&later.0, later.1) == (&kept.0, kept.1));
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// Groups names into runs of blktrace: the files of one set (`sda.blktrace.0 sda.blktrace.1`, as the shell's `*` gives them), and sets of
/// other devices in the same directory. Every other name is a group of its own.
pub(crate) fn sets(paths: &[PathBuf]) -> Vec<Vec<usize>> {
    /// A run: its directory, and its sets with the device of their first record.
    struct Run {
        directory: PathBuf,
        sets: Vec<(PathBuf, Option<u32>)>,
        members: Vec<usize>,
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut alone = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        let base = split_name(path).map(|(base, _)| base).filter(|_| path.is_file());
        let Some(base) =
            base.or_else(|| (!path.exists() && parts_of(path).is_ok_and(|p| !p.is_empty())).then(|| path.clone()))
        else {
            alone.push(vec![at]);
            continue;
        };
        let directory = base.parent().map(Path::to_path_buf).unwrap_or_default();
        let same = runs.iter_mut().find(|run| run.sets.iter().any(|(known, _)| *known == base));
        if let Some(run) = same {
            run.members.push(at);
            continue;
        }
        // Two sets of one device are two runs, because their times may be from two boots.
        let device = first_device(&base);
        let other = |run: &&mut Run| run.directory == directory && run.sets.iter().all(|(_, known)| *known != device);
        match runs.iter_mut().find(other) {
            Some(run) => {
                run.sets.push((base, device));
                run.members.push(at);
            }
            None => runs.push(Run { directory, sets: vec![(base, device)], members: vec![at] }),
        }
    }
    let mut all: Vec<Vec<usize>> = runs.into_iter().map(|run| run.members).chain(alone).collect();
    all.sort();
    all
}

/// The device of a set's first step; `None` without a step. Notes name no device.
fn first_device(base: &Path) -> Option<u32> {
    /// Records that are checked: notes come before their steps.
    const RECORDS: u32 = 4096;
    let parts = parts_of(base).ok()?;
    parts.iter().find_map(|part| {
        let input = opened(part, bytes_of(&parts)).ok()?.input;
        let mut head = [0; 4];
        let n = input.fill_at(&mut head, 0).ok()?;
        let (endian, _) = kind(&head[..n])?;
        let mut lane =
            super::Lane::new(&Part { input: Arc::new(input), endian, runs: None, rebased: false, recording: 0 }, 64);
        let (mut device, mut left) = (None, RECORDS);
        lane.start().ok()?;
        let mut step = |raw: &Raw<'_>| {
            if !raw.is_notify() {
                device.get_or_insert(raw.header.device());
            }
        };
        lane.hand_out(
            |_| {
                left -= 1;
                left > 0
            },
            &mut step,
        )
        .ok()?;
        device
    })
}

/// All files of the sets that these names belong to, and a common name for them.
pub(crate) fn find_all(paths: &[PathBuf]) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let mut bases: Vec<PathBuf> =
        paths.iter().map(|p| split_name(p).map_or_else(|| p.clone(), |(base, _)| base)).collect();
    bases.sort();
    bases.dedup();
    let mut parts = Vec::new();
    for base in &bases {
        parts.extend(parts_of(base)?);
    }
    match &bases[..] {
        [one] => Ok((one.clone(), parts)),
        several => Ok((several.first().and_then(|base| base.parent()).unwrap_or(Path::new("")).to_path_buf(), parts)),
    }
}

/// The files that a trace of this name is read from: links are followed, and standard input is the file that it was opened from.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    if path == Path::new("-") {
        return vec![PathBuf::from("/dev/stdin")];
    }
    let parts = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => parts_in(path, None),
        Ok(_) => split_name(path).map_or(Ok(Vec::new()), |(base, _)| parts_of(&base)),
        Err(_) => parts_of(path),
    };
    let mut files = parts.unwrap_or_default();
    files.push(path.to_path_buf());
    files
}

/// Largest number of bytes kept from a pipe.
const PIPE_BYTES: u64 = 8 << 30;

/// Reads a pipe into a file that only this process has. Stops if the beginning is not a trace, or if the data takes more than half of the
/// free space: a device or a pipe may never end.
fn spool(path: &Path, mut from: impl io::Read) -> Result<Input, Error> {
    let failed = |e: io::Error| Error::io(path, "keep what came through the pipe of", e);
    let mut head = Vec::with_capacity(Head::SIZE);
    from.by_ref().take(Head::SIZE as u64).read_to_end(&mut head).map_err(failed)?;
    begins_as_known(path, Head::of(head.clone()))?;
    let mut file = nameless(path)?;
    let limit = flashscope_output::free_bytes_of(&file).map_or(PIPE_BYTES, |free| (free / 2).min(PIPE_BYTES));
    file.write_all(&head).map_err(failed)?;
    let kept = io::copy(&mut from.by_ref().take(limit), &mut file).map_err(failed)?;
    if kept == limit && from.read(&mut [0]).map_err(failed)? > 0 {
        return Err(Error::Unsupported {
            path: path.to_path_buf(),
            what: format!(
                "more than {limit} bytes came through the pipe, which is half of the free space of {} or 8 GiB: write them \
                 to a file and name that, or set TMPDIR to a larger disk",
                std::env::temp_dir().display()
            ),
        });
    }
    Ok(Input::File(file))
}

/// Opens a stream: one file with the records of all CPUs.
pub(crate) fn of_input(path: &Path, input: Input) -> Result<Opened, Error> {
    let mut head = [0; 4];
    let n = input.fill_at(&mut head, 0).map_err(|e| Error::io(path, "read", e))?;
    let (endian, version) = kind(&head[..n]).ok_or_else(|| not_blktrace(path))?;
    let source = Part { input: Arc::new(input), endian, runs: None, rebased: false, recording: 0 };
    let (scanned, losses) = scan::scan(&source).map_err(|e| Error::io(path, "read", e))?;
    // blkparse -d counts from the first step, the kernel from boot.
    let clock = if scanned.rebased { "blkparse" } else { "mono" };
    let log = Log {
        sources: scanned.sources,
        schemas: decode::schemas_or(path, endian)?,
        cpus: scanned.highest_cpu.saturating_add(1).min(1 << 16),
        clock,
        gap: Arc::default(),
    };
    Ok(finish(log, endian, version, 1, losses))
}

/// Opens per-CPU files.
pub(crate) fn of_parts(path: &Path, parts: &[PathBuf]) -> Result<Opened, Error> {
    let mut cut = 0;
    let inputs = parts.iter().map(|part| {
        let found = opened(part, bytes_of(parts))?;
        cut += u64::from(found.cut);
        Ok((part.as_path(), found.input))
    });
    let highest = parts.iter().filter_map(|p| split_name(p)).map(|(_, n)| n).max().unwrap_or(0);
    let mut opened = of_inputs(path, inputs, highest)?;
    opened.losses.add(Loss::DataCut, cut);
    let absent = absent(parts);
    opened.losses.add(Loss::CpuFilesMissing, absent.len() as u64);
    let mut cpus: Vec<u32> = absent.into_iter().take(MAX_ABSENT).collect();
    cpus.sort_unstable();
    cpus.dedup();
    if !cpus.is_empty() {
        opened.facts["blktrace"]["cpus_missing"] = cpus.into();
    }
    Ok(opened)
}

/// CPUs without a file in a set that has a file for a higher CPU, for all sets one after the other. blktrace writes a file for each online
/// CPU (`blktrace.c`: `open_ios`).
fn absent(parts: &[PathBuf]) -> Vec<u32> {
    let mut sets: BTreeMap<PathBuf, BTreeSet<u32>> = BTreeMap::new();
    for (base, cpu) in parts.iter().filter_map(|part| split_name(part)) {
        sets.entry(base).or_default().insert(cpu);
    }
    let below = |cpus: &BTreeSet<u32>| 0..cpus.last().copied().unwrap_or(0).min(1 << 16);
    sets.values().flat_map(|cpus| below(cpus).filter(|cpu| !cpus.contains(cpu))).collect()
}

/// Total size of the files.
fn bytes_of(parts: &[PathBuf]) -> u64 {
    parts.iter().filter_map(|part| Some(std::fs::metadata(part).ok()?.len())).sum()
}

/// Opens one CPU's file, which may be packed. `whole`: total size of the trace's files, bytes.
fn opened(part: &Path, whole: u64) -> Result<Unpacked, Error> {
    let input = Input::open(part).map_err(|e| Error::io(part, "open", e))?;
    let mut head = [0; 8];
    let n = input.fill_at(&mut head, 0).map_err(|e| Error::io(part, "read", e))?;
    match Packing::of(&head[..n]) {
        Some(packing) => packed::unpack(part, &input, packing, whole, |_| Ok(())),
        None => Ok(Unpacked { input, cut: false }),
    }
}

/// Opens the contents of per-CPU files in memory, CPU 0's first.
pub(crate) fn of_memory(path: &Path, parts: &[Arc<[u8]>]) -> Result<Opened, Error> {
    let inputs = parts.iter().map(|part| Ok((path, Input::Memory(Arc::clone(part)))));
    of_inputs(path, inputs, u32::try_from(parts.len()).unwrap_or(u32::MAX).saturating_sub(1))
}

fn of_inputs<'a>(
    path: &Path,
    inputs: impl Iterator<Item = Result<(&'a Path, Input), Error>>,
    highest: u32,
) -> Result<Opened, Error> {
    let mut sources = Vec::new();
    let (mut first, mut files) = (None, 0);
    for part in inputs {
        let (part, input) = part?;
        files += 1;
        let mut head = [0; 4];
        match input.fill_at(&mut head, 0).map_err(|e| Error::io(part, "read", e))? {
            // A CPU without events.
            0 => continue,
            n => {
                let (endian, version) = kind(&head[..n]).ok_or_else(|| not_blktrace(part))?;
                let (said, v) = *first.get_or_insert((endian, version));
                if said != endian {
                    return Err(Error::malformed(part, 0, "the byte order of the files beside it", "the other"));
                }
                first = Some((said, v.max(version)));
                sources.push(Part { input: Arc::new(input), endian, runs: None, rebased: false, recording: 0 });
            }
        }
    }
    let (endian, version) = first.unwrap_or((Endian::Little, super::record::V7));
    let log = Log {
        sources,
        schemas: decode::schemas_or(path, endian)?,
        cpus: highest.saturating_add(1).min(1 << 16),
        clock: "mono",
        gap: Arc::default(),
    };
    Ok(finish(log, endian, version, files, Losses::new()))
}

fn not_blktrace(path: &Path) -> Error {
    Error::malformed(path, 0, "a blktrace record (0x65617407 or 0x65617408, either byte order)", "something else")
}

fn finish(log: Log, endian: Endian, version: u8, files: usize, losses: Losses) -> Opened {
    let facts = json!({"blktrace": {
        "version": version_of(version),
        "byte_order": match endian { Endian::Little => "little", Endian::Big => "big" },
        "files": files,
        "wall_clock": wall_clock(&log),
    }});
    Opened { facts, losses, ..Opened::of(TraceKind::Blktrace, log) }
}

/// The kernel's first note of the wall clock, with its time in the trace.
fn wall_clock(log: &Log) -> Value {
    if log.sources.iter().any(|source| source.rebased) {
        // The note's time counts from another moment than the other records.
        return Value::Null;
    }
    /// Notes come at the start of tracing: among the first records of their file.
    const RECORDS: i32 = 64;
    let mut found: Option<(u64, u64)> = None;
    for source in &log.sources {
        let mut lane = super::Lane::new(source, 64);
        let mut left = RECORDS;
        // After an error, a note that was found before it counts.
        let _ = lane.start().and_then(|_| {
            lane.hand_out(
                |_| {
                    left -= 1;
                    left >= 0
                },
                &mut |raw: &Raw<'_>| {
                    if let Some(wall) = decode::wall_clock_ns(raw)
                        && found.is_none_or(|(time, _)| raw.header.time() < time)
                    {
                        found = Some((raw.header.time(), wall));
                    }
                },
            )
        });
    }
    match found {
        Some((time, wall)) => json!({"time_ns": time, "realtime_ns": wall}),
        None => Value::Null,
    }
}
