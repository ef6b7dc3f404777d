//! Parts that all kinds of studies share: mounting a file system, the inputs of a result, the store of finished groups, and the check of a
//! recording's losses.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use flashscope_output::{Output, Rules, hex};
pub(crate) use flashscope_targets::board::MOUNT_POINT;
use flashscope_targets::board::{Board, Image, Kernel};
use flashscope_trace::{Loss, Session, Step, Trace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::definition::Filesystem;
use crate::error::StudyError;
use crate::result::Inputs;

pub const SQUASHFS_IMAGE: &str = "/flashscope/data.squashfs";

/// Largest size of a kept group, bytes. A group of the built-in studies has less than one.
const KEPT_BYTES: u64 = 64 << 20;

/// The background thread of the first UBI device.
const UBI_THREAD: &str = "ubi_bgt0d";

/// Lines of a plan that mount a file system, once its chip (as mtd0) or its disk exists.
pub(crate) struct Mount {
    /// Lines that come first, once.
    pub prepare: Vec<String>,
    pub mount: String,
    /// Kernel thread that works after mounting. JFFS2's collector checks every node's CRC. UBI's thread erases and formats every block
    /// without contents. YAFFS2's thread has no work, unless a page had bits restored.
    pub collector: Option<&'static str>,
}

impl Mount {
    /// `device`: for a file system on a disk.
    pub fn new(filesystem: Filesystem, device: Option<&str>) -> Mount {
        let name = filesystem.as_str();
        let on = |source: &str, kind: &str, options: &str| format!("mount {source} {MOUNT_POINT} {kind} {options}");
        let there = |path: &str| format!("device-wait {path} 5000");
        let lines = |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.to_owned()).collect() };
        // One volume `data` on the whole of mtd0.
        let volume = || lines(&["ubi-attach 0", &there("/dev/ubi0"), "ubi-mkvol 0 data all", &there("/dev/ubi0_0")]);
        let (prepare, mount, collector) = match (filesystem, device) {
            (_, Some(device)) => (Vec::new(), on(device, name, "-"), None),
            (Filesystem::Ubifs, None) => (volume(), on("ubi0:data", name, "-"), Some(UBI_THREAD)),
            (Filesystem::Yaffs2, None) => {
                (lines(&[&there("/dev/mtdblock0")]), on("/dev/mtdblock0", name, "-"), Some("yaffs2_gc"))
            }
            (Filesystem::SquashfsMtdblock, None) => {
                let written = format!("nand-write 0 {SQUASHFS_IMAGE}");
                (lines(&[&written, &there("/dev/mtdblock0")]), on("/dev/mtdblock0", "squashfs", "ro"), None)
            }
            (Filesystem::SquashfsUbiblock, None) => {
                let written = format!("ubi-write /dev/ubi0_0 {SQUASHFS_IMAGE}");
                let mut prepare = volume();
                prepare.extend(lines(&[&written, "ubi-block /dev/ubi0_0", &there("/dev/ubiblock0_0")]));
                (prepare, on("/dev/ubiblock0_0", "squashfs", "ro"), Some(UBI_THREAD))
            }
            (_, None) => (Vec::new(), on("mtd0", name, "-"), Some("jffs2_gcd")),
        };
        Mount { prepare, mount, collector }
    }

    /// Waits until the collector is idle.
    pub fn settle(&self) -> Option<String> {
        self.collector.map(|thread| format!("settle {thread} 200 600000"))
    }
}

/// Lines of a plan that make and mount a file system on mtd0, and wait until its threads are idle.
pub fn on_nand(filesystem: Filesystem) -> Vec<String> {
    let mounting = Mount::new(filesystem, None);
    let mut lines = vec![format!("mkdir {MOUNT_POINT}")];
    lines.extend(mounting.prepare.iter().cloned());
    lines.push(mounting.mount.clone());
    lines.extend(mounting.settle());
    lines
}

/// All inputs of a boot.
pub(crate) fn inputs(board: &Board, line: &str, kernel: &Kernel, image: &Image, qemu: String) -> Inputs {
    Inputs {
        board: board.name.clone(),
        board_sha256: board.sha256.clone(),
        kernel: line.to_owned(),
        kernel_release: kernel.release.clone(),
        kernel_package: format!("{} {}", kernel.package, kernel.version),
        kernel_sha256: kernel.sha256.clone(),
        qemu,
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        agent_sha256: image.agent_sha256.clone(),
        image_sha256: image.sha256.clone(),
    }
}

/// The path of a finished group, by its inputs: all inputs of the boot, and the program that reads the results.
pub(crate) fn kept_at(store: &Path, id: &str, inputs: &Inputs) -> PathBuf {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(inputs).expect("strings serialise"));
    if let Ok(program) = std::env::current_exe().and_then(std::fs::read) {
        hash.update(Sha256::digest(program));
    }
    store.join(format!("{id}-{}.json", &hex(&hash.finalize())[..16]))
}

/// A group that an earlier run with the same inputs finished. `None` if the file is not regular, belongs to another user, or is too large.
pub(crate) fn kept<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = flashscope_output::read_own(path, KEPT_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Written in a scratch directory and renamed: a killed run leaves no partial result.
pub(crate) fn keep(path: &Path, group: &impl Serialize) -> Result<(), StudyError> {
    let failed = |source| StudyError::Store { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let scratch = flashscope_targets::ScratchDir::new("group")?;
    let whole = scratch.path().join("group.json");
    let mut file = std::fs::File::create(&whole).map_err(failed)?;
    let bytes = serde_json::to_vec(group).expect("a group serialises");
    file.write_all(&bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    match std::fs::rename(&whole, path) {
        // The store is on another file system than the cache.
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            let copied = Output::write_whole(path, &bytes, Rules::default());
            copied.map(drop).map_err(|error| failed(std::io::Error::other(error.to_string())))
        }
        renamed => renamed.map_err(failed),
    }
}

/// With one of these losses, counts are too low or calls are wrong without a sign of it.
const EVENTS_LOST: [Loss; 4] =
    [Loss::EventsOverwritten, Loss::EventsDropped, Loss::CommitOverruns, Loss::EventsNotDrained];

/// Refuses a recording that lost events. `unknown`: the missing result, and what to do.
pub(crate) fn whole(trace: &Trace, group: &str, unknown: &'static str) -> Result<(), StudyError> {
    let lost = trace.losses();
    match EVENTS_LOST.into_iter().map(|loss| (loss.name(), lost.get(loss))).find(|&(_, count)| count > 0) {
        Some((name, count)) => Err(StudyError::Lost { group: group.to_owned(), name, count, unknown }),
        None => Ok(()),
    }
}

/// A step of the plan that ended with status 0.
pub(crate) fn finished<'a>(session: &'a Session, group: &str, step: &str) -> Result<&'a Step, StudyError> {
    let (group, name) = (group.to_owned(), step.to_owned());
    match session.step(step).map(|step| (step, step.status)) {
        Some((step, Some(0))) => Ok(step),
        Some((step, Some(status))) => {
            let stderr = String::from_utf8_lossy(&step.stderr);
            let why = format!("failed with status {status}: {}", stderr.trim().replace("flashscope-agent: ", ""));
            Err(StudyError::Step { group, step: name, why })
        }
        None | Some((_, None)) => Err(StudyError::NoStep { group, step: name }),
    }
}

/// The JSON that such a step printed.
pub(crate) fn printed<T: DeserializeOwned>(session: &Session, group: &str, step: &str) -> Result<T, StudyError> {
    serde_json::from_slice(&finished(session, group, step)?.stdout).map_err(|error| {
        let why = format!("printed no result that can be read: {error}");
        StudyError::Step { group: group.to_owned(), step: step.to_owned(), why }
    })
}
