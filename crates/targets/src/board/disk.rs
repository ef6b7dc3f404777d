//! A block device defined by a file (`disks/*.toml`), and its initial file system.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::process;
use crate::scratch::ScratchDir;

/// A block device of a virtual board.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Description, for results.
    pub name: String,
    /// "/dev/nullb0"
    pub device: String,
    /// Kernel modules, each with its parameters.
    modules: Vec<String>,
    /// Lines of the plan that create the device; `{NAME}` stands for a setting.
    setup: Vec<String>,
    /// Arguments for QEMU; `{file}` is a file of this run with the disk's contents. Without `{file}`, the plan writes the contents.
    #[serde(default)]
    qemu_args: Vec<String>,
    /// Settings with their default values: numbers and names.
    settings: BTreeMap<String, Setting>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Setting {
    Number(u64),
    Name(String),
}

/// Schedulers that are separate modules, unless they are built in (block/*.c of 5.10 to 7.2).
const SCHEDULERS: [(&str, &str); 3] = [("mq-deadline", "mq-deadline"), ("kyber", "kyber-iosched"), ("bfq", "bfq")];

/// Mount point of a disk's file system.
pub const MOUNT_POINT: &str = "/mnt";

impl Disk {
    /// The settings for a run: the board's, with changes.
    pub fn settings(&self, board: &str, changes: &[(String, String)]) -> Result<DiskSettings, Error> {
        let problem = |problem: String| Error::Disk { board: board.to_owned(), problem };
        let mut values: BTreeMap<String, String> = self
            .settings
            .iter()
            .map(|(name, value)| {
                let text = match value {
                    Setting::Number(number) => number.to_string(),
                    Setting::Name(text) => text.clone(),
                };
                (name.clone(), text)
            })
            .collect();
        for (name, value) in changes {
            let known = || self.settings.keys().cloned().collect::<Vec<_>>().join(", ");
            let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            match (self.settings.get(name), values.get_mut(name)) {
                (Some(Setting::Number(_)), Some(_)) if value.parse::<u64>().is_err() => {
                    return Err(problem(format!("{name}={value} is not a number")));
                }
                (Some(_), Some(_)) if !plain => {
                    return Err(problem(format!(
                        "{name}={value:?} has characters other than letters, digits, - _ and ."
                    )));
                }
                (Some(_), Some(to)) => to.clone_from(value),
                _ => return Err(problem(format!("{name} is not a setting of its disk; the settings are {}", known()))),
            }
        }
        let settings = DiskSettings { values };
        let size = settings.number("size_mib").unwrap_or(0);
        if size == 0 || size > 1 << 20 {
            return Err(problem(format!("size_mib={size}; a disk has at least 1 MiB and at most 1 TiB")));
        }
        settings.filesystem().map_err(problem)?;
        Ok(settings)
    }

    /// Names of modules with their parameters, without file system modules.
    pub(super) fn modules(&self, settings: &DiskSettings) -> Vec<(String, String)> {
        let split = |text: &String| match text.split_once(' ') {
            Some((name, parameters)) => (name.to_owned(), parameters.to_owned()),
            None => (text.clone(), String::new()),
        };
        let scheduler = settings.values.get("scheduler").map_or("none", String::as_str);
        let more = SCHEDULERS.iter().filter(|(name, _)| *name == scheduler);
        self.modules.iter().map(split).chain(more.map(|(_, module)| ((*module).to_owned(), String::new()))).collect()
    }

    pub(super) fn setup(&self, settings: &DiskSettings) -> Vec<String> {
        self.setup.iter().map(|line| settings.fill(line)).collect()
    }

    pub(super) fn qemu_args(&self, settings: &DiskSettings) -> Vec<String> {
        self.qemu_args.iter().map(|word| settings.fill(word)).collect()
    }

    /// Whether the contents are in a file for QEMU, instead of being written by the plan.
    pub(super) fn is_file(&self) -> bool {
        self.qemu_args.iter().any(|word| word.contains(FILE))
    }
}

/// Placeholder for the run's file in QEMU's arguments.
pub(super) const FILE: &str = "{file}";

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    values: BTreeMap<String, String>,
}

impl DiskSettings {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub fn size_bytes(&self) -> u64 {
        self.number("size_mib").unwrap_or(0) << 20
    }

    /// The disk's file system; `None` if the setting is `none`.
    pub fn filesystem(&self) -> Result<Option<DiskFilesystem>, String> {
        match self.get("filesystem").unwrap_or("none") {
            "none" => Ok(None),
            name => DiskFilesystem::ALL
                .into_iter()
                .find(|filesystem| filesystem.name() == name)
                .map(Some)
                .ok_or_else(|| format!("filesystem={name}; it can be none, ext4 or f2fs")),
        }
    }

    fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }
}

/// "completion_ns=100000, filesystem=ext4, …"
impl std::fmt::Display for DiskSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&all.join(", "))
    }
}

/// A file system that is created on this host for a board's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFilesystem {
    Ext4,
    F2fs,
}

impl DiskFilesystem {
    const ALL: [DiskFilesystem; 2] = [DiskFilesystem::Ext4, DiskFilesystem::F2fs];

    /// The name for mount(2) and of the kernel's module.
    pub fn name(self) -> &'static str {
        match self {
            DiskFilesystem::Ext4 => "ext4",
            DiskFilesystem::F2fs => "f2fs",
        }
    }

    /// Creates an empty file system, with equal bytes on every host whose tools support these features.
    pub(super) fn make(self, size: u64) -> Result<Contents, Error> {
        let dir = ScratchDir::new(self.name())?;
        let path = dir.path().join("disk");
        let file = std::fs::File::create(&path).map_err(|e| Error::io(&path, e))?;
        file.set_len(size).map_err(|e| Error::io(&path, e))?;
        drop(file);
        match self {
            DiskFilesystem::Ext4 => ext4(dir.path(), &path)?,
            DiskFilesystem::F2fs => f2fs(&path)?,
        }
        Contents::read(&path)
    }
}

/// 2020-01-01, the time of a board's clock at power-on.
const MADE_AT: &str = "1577836800";
const UUID: &str = "5f1a5c09-0000-4000-8000-000000000001";
const HASH_SEED: &str = "5f1a5c09-0000-4000-8000-000000000002";

fn program(name: &str, package: &str) -> Result<Command, Error> {
    let path = process::find_program(name)
        .ok_or_else(|| Error::ProgramMissing { program: name.to_owned(), package: package.to_owned() })?;
    Ok(Command::new(path))
}

/// The default features of a new ext4 in e2fsprogs 1.47 (mke2fs.conf), without those that 5.10 lacks. The inode tables are initialised, so
/// that no thread zeroes them in the background after mounting.
fn ext4(dir: &Path, disk: &Path) -> Result<(), Error> {
    let conf = dir.join("mke2fs.conf");
    std::fs::write(&conf, "[defaults]\n[fs_types]\n\text4 = {\n\t}\n\tsmall = {\n\t}\n")
        .map_err(|e| Error::io(&conf, e))?;
    let mut command = program("mke2fs", "e2fsprogs")?;
    command.env("MKE2FS_CONFIG", &conf).env("E2FSPROGS_FAKE_TIME", MADE_AT).env_remove("SOURCE_DATE_EPOCH");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-J", "size=4"]);
    command.args(["-U", UUID, "-E"]);
    command.arg(format!("hash_seed={HASH_SEED},lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0"));
    command.args([
        "-O",
        "none,sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr,has_journal,extent,huge_file,flex_bg,\
         metadata_csum,64bit,dir_nlink,extra_isize",
    ]);
    process::checked(command.arg(disk), "e2fsprogs").map(drop)
}

fn f2fs(disk: &Path) -> Result<(), Error> {
    let mut command = program("mkfs.f2fs", "f2fs-tools")?;
    command.args(["-q", "-f", "-r", "-t", "0", "-U", UUID, "-T", MADE_AT]);
    process::checked(command.arg(disk), "f2fs-tools").map(drop)
}

/// The contents of a disk: its size, and the non-zero pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub size: u64,
    /// Offset and bytes, in order.
    pub pieces: Vec<(u64, Vec<u8>)>,
}

const BLOCK: usize = 4096;
/// Two pieces with up to this number of zero blocks between them are joined: fewer pieces need fewer steps in the plan.
const JOIN: u64 = 16;

impl Contents {
    fn read(path: &Path) -> Result<Contents, Error> {
        let failed = |e| Error::io(path, e);
        let file = std::fs::File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut contents = Contents { size, pieces: Vec::new() };
        let mut block = Vec::with_capacity(BLOCK);
        let mut at = 0;
        loop {
            block.clear();
            let n = (&file).take(BLOCK as u64).read_to_end(&mut block).map_err(failed)?;
            if n == 0 {
                return Ok(contents);
            }
            if block.iter().any(|&byte| byte != 0) {
                contents.add(at, &block);
            }
            at += n as u64;
        }
    }

    fn add(&mut self, at: u64, bytes: &[u8]) {
        if let Some((offset, last)) = self.pieces.last_mut()
            && at - (*offset + last.len() as u64) <= JOIN * BLOCK as u64
        {
            last.resize((at - *offset) as usize, 0);
            last.extend_from_slice(bytes);
        } else {
            self.pieces.push((at, bytes.to_vec()));
        }
    }

    pub(super) fn empty(size: u64) -> Contents {
        Contents { size, pieces: Vec::new() }
    }

    /// Hash of size and pieces.
    pub(super) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.size.to_le_bytes());
        for (offset, bytes) in &self.pieces {
            hash.update(offset.to_le_bytes());
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        flashscope_output::hex(&hash.finalize())
    }

    /// Writes the contents to a sparse file.
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |e| Error::io(path, e);
        let mut file = std::fs::File::create(path).map_err(failed)?;
        file.set_len(self.size).map_err(failed)?;
        for (offset, bytes) in &self.pieces {
            file.seek(SeekFrom::Start(*offset)).and_then(|_| file.write_all(bytes)).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        toml::from_str(
            "name = \"x\"\ndevice = \"/dev/x\"\nmodules = [\"null_blk nr_devices=0\"]\nsetup = [\"write /a {size_mib}\", \"write /s {scheduler}\"]\n\
             [settings]\nsize_mib = 64\nscheduler = \"none\"\nfilesystem = \"ext4\"\n",
        )
        .unwrap()
    }

    fn changed(changes: &[(&str, &str)]) -> Result<DiskSettings, String> {
        let changes: Vec<_> = changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        disk().settings("b", &changes).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_fill_the_plan_and_name_the_modules() {
        let settings = changed(&[("scheduler", "kyber"), ("size_mib", "8")]).unwrap();
        assert_eq!(disk().setup(&settings), ["write /a 8", "write /s kyber"]);
        let modules = disk().modules(&settings);
        assert_eq!(modules[0], ("null_blk".to_owned(), "nr_devices=0".to_owned()));
        assert_eq!(modules[1].0, "kyber-iosched");
        assert_eq!(settings.size_bytes(), 8 << 20);
        assert_eq!(settings.filesystem(), Ok(Some(DiskFilesystem::Ext4)));
        assert_eq!(disk().modules(&changed(&[]).unwrap()).len(), 1);
    }

    #[test]
    fn settings_that_make_no_sense_are_told() {
        let error = changed(&[("speed", "1")]).unwrap_err();
        assert!(
            error.contains("speed is not a setting of its disk; the settings are filesystem, scheduler, size_mib"),
            "{error}"
        );
        assert!(changed(&[("size_mib", "big")]).unwrap_err().contains("not a number"));
        assert!(changed(&[("size_mib", "0")]).unwrap_err().contains("at least 1 MiB"));
        assert!(changed(&[("scheduler", "a b")]).unwrap_err().contains("characters other than"));
        assert!(changed(&[("filesystem", "ntfs")]).unwrap_err().contains("none, ext4 or f2fs"));
        assert_eq!(changed(&[("filesystem", "none")]).unwrap().filesystem(), Ok(None));
    }

    #[test]
    fn contents_keep_what_is_not_zero_and_come_back_whole() {
        let dir = ScratchDir::new("contents").unwrap();
        let path = dir.path().join("a");
        let mut bytes = vec![0u8; 200 * BLOCK];
        for at in [0, 3 * BLOCK + 5, 150 * BLOCK] {
            bytes[at] = 7;
        }
        std::fs::write(&path, &bytes).unwrap();
        let contents = Contents::read(&path).unwrap();
        assert_eq!(
            contents.pieces.iter().map(|(at, piece)| (*at, piece.len())).collect::<Vec<_>>(),
            [(0, 4 * BLOCK), (150 * BLOCK as u64, BLOCK)]
        );
        let copy = dir.path().join("b");
        contents.write(&copy).unwrap();
        assert_eq!(std::fs::read(&copy).unwrap(), bytes);
        assert_ne!(contents.sha256(), Contents::empty(contents.size).sha256());
    }

    #[test]
    fn an_ext4_is_the_same_bytes_each_time() {
        let made = || DiskFilesystem::Ext4.make(16 << 20).unwrap();
        let first = made();
        assert_eq!(first, made());
        // The superblock's magic number, 0xef53 at 1024 + 56.
        assert_eq!(first.pieces[0].1[1024 + 56..1024 + 58], [0x53, 0xef]);
        assert!(first.pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>() < 1 << 20);
    }
}
