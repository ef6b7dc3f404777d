//! A full disk under the trace: an error that says what is kept, and nothing left behind.

use crate::common::*;
use flashscope_trace::{Endian, Error, Trace, dat};
use std::process::Command;

/// A small file system of its own, unmounted with the test.
struct Small(std::path::PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn no_space_left() {
    let dir = TempDir::new("full");
    let small = dir.0.join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "flashscope-test"]).arg(&small).output();
    if !mount.as_ref().is_ok_and(|m| m.status.success()) {
        eprintln!("skipped: a small tmpfs cannot be mounted (it takes root): {mount:?}");
        return;
    }
    let small = Small(small);
    let stream = dir.file("s.fs", &example(Endian::Little, 4, 4096).bytes);
    let trace = Trace::open(&stream).unwrap();
    let error = dat::write(&trace, &small.0.join("t.dat")).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("no space left") && text.contains("s.fs is kept and readable"), "{text}");
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0, "nothing half-written stays");
    assert_eq!(flash_count(&events(&Trace::open(&stream).unwrap())), 603);
}

#[test]
fn a_directory_that_is_not_there() {
    let dir = TempDir::new("nodir");
    let trace = Trace::open(&dir.file("s.fs", &example(Endian::Little, 4, 4096).bytes)).unwrap();
    let error = dat::write(&trace, &dir.0.join("no/t.dat")).unwrap_err().to_string();
    assert!(error.contains("t.dat: cannot create: "), "{error}");
}
