//! Debian's blkparse and btt, run on a recording.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of the test's own, removed with the value.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("flashscope-btt-{}-{name}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What btt writes.
pub struct Btt {
    /// Its tables.
    pub tables: String,
    /// When the system and each process were active: `b.dat`.
    #[allow(dead_code, reason = "not every test asks for it")]
    pub activity: String,
}

/// `None` (and a word about it) where btt is not installed.
pub fn btt(base: &Path) -> Option<Btt> {
    let dir = Dir::new(&format!("run-{:?}", std::thread::current().id()));
    let merged = dir.0.join("merged");
    let (parent, name) = (base.parent().unwrap(), base.file_name().unwrap());
    let run =
        Command::new("blkparse").current_dir(parent).args(["-q", "-O", "-i"]).arg(name).arg("-d").arg(&merged).output();
    let run = run.and_then(|out| {
        assert!(out.status.success());
        Command::new("btt").current_dir(&dir.0).args(["-A", "-i", "merged", "-o", "b"]).output()
    });
    match run {
        Ok(out) => assert!(out.status.success()),
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "btt: {e}");
            eprintln!("skipped: btt: {e}; install it (apt-get install blktrace) to compare with it");
            return None;
        }
    }
    let read = |name| std::fs::read_to_string(dir.0.join(name)).unwrap();
    Some(Btt { tables: read("b.avg"), activity: read("b.dat") })
}
