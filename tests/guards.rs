//! Processes, loop devices and file systems of a test. They are gone with their values, also where the test fails.

use crate::{TempDir, cannot_record, output, skip, with_write_cache};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// What a command printed, or why it failed.
fn done(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let [printed, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).trim().to_owned());
    if output.status.success() { Ok(printed) } else { Err(format!("{command:?}: {said}")) }
}

/// A process that is killed with the value.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A loop device, such as `/dev/loop0`.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// `options`: of losetup.
    pub fn of(file: &Path, options: &[&str]) -> Result<LoopDevice, String> {
        let shown = done(Command::new("losetup").args(["-f", "--show"]).args(options).arg(file))?;
        Ok(LoopDevice(with_write_cache(shown.as_bytes())))
    }

    pub fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }

    /// Its number, such as `7:0`.
    pub fn number(&self) -> String {
        let path = format!("/sys/block/{}/dev", self.name());
        std::fs::read_to_string(path).expect("its number").trim().to_owned()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        output(Command::new("losetup").args(["-d", &self.0]));
    }
}

/// A file system that is mounted while the test runs.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// In a new directory.
    pub fn new(options: &[&str], source: &str, at: PathBuf) -> Result<Mounted, String> {
        std::fs::create_dir(&at).expect("a directory");
        done(Command::new("mount").args(options).arg(source).arg(&at)).map(|_| Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The last write of what was killed may still be under way; the test may have mounted more below it.
        output(Command::new("umount").args(["-l", "-R"]).arg(&self.0));
    }
}

/// A new file system in the file `image` of a directory of its own, mounted on `m` beside it.
pub struct LoopDisk {
    pub mounted: Mounted,
    pub device: LoopDevice,
    pub dir: TempDir,
}

impl LoopDisk {
    /// ext4; `None` where this host cannot, which is said. Options of mkfs.ext4, losetup and mount.
    pub fn ext4(label: &str, mib: u32, mkfs: &str, losetup: &[&str], mount: &str) -> Option<LoopDisk> {
        let mkfs = format!("mkfs.ext4 -q -F {mkfs} -E lazy_itable_init=0,lazy_journal_init=0 image");
        LoopDisk::new(label, mib, &mkfs, losetup, &format!("noinit_itable,{mount}"))
    }

    /// `mkfs`: the command that makes the file system.
    pub fn new(label: &str, mib: u32, mkfs: &str, losetup: &[&str], mount: &str) -> Option<LoopDisk> {
        if let Some(why) = cannot_record() {
            skip(&format!("{label}: {why}"));
            return None;
        }
        let dir = TempDir::new(label);
        let make = format!("dd if=/dev/zero of=image bs=1M count={mib} status=none; {mkfs}; sync -f image");
        let made = || {
            done(Command::new("sh").current_dir(dir.path()).args(["-ec", &make]))?;
            let device = LoopDevice::of(&dir.path().join("image"), losetup)?;
            let mounted = Mounted::new(&["-o", mount], &device.0, dir.path().join("m"))?;
            Ok::<_, String>((mounted, device))
        };
        match made() {
            Ok((mounted, device)) => Some(LoopDisk { mounted, device, dir }),
            Err(why) => {
                skip(&format!("{label}: no loop device with a file system: {why}"));
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a script of the shell beside the image.
    pub fn sh(&self, script: &str) -> Output {
        output(Command::new("sh").current_dir(self.path()).args(["-ec", script]))
    }
}
