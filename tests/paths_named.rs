//! How many of the bytes of a mixed workload have a path, on each file system.

use std::path::Path;
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, output, skip, stdout};
use serde_json::Value;

/// Reads, writes, growing files and a renamed one, copies in directories, and files that were dirty before. `$m` is the mount.
const WORK: &str = "cat $m/old1 $m/old2 >/dev/null; head -c 600000 /dev/urandom >$m/new; sync; mv $m/new $m/renamed; \
                    for i in 1 2 3 4 5 6 7 8; do head -c 1000 /dev/urandom >>$m/old$i; done; \
                    mkdir -p $m/a/b/c; for i in 1 2 3 4 5 6 7 8; do cp $m/old$i $m/a/b/c/f$i; done; sync";
/// A file that is closed at once and deleted after a second.
const DELETED: &str = "head -c 100000 /dev/urandom >$m/temp; sleep 1; rm $m/temp; sync";
const BEFORE: &str = "for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/urandom >$m/old$i; done; sync; \
                      echo 3 >/proc/sys/vm/drop_caches; \
                      for i in 1 2 3; do head -c 150000 /dev/urandom >$m/before$i; done";

/// Of the files on one device (`None`: all), at least 99 % of bytes that are no metadata have a path; the rest has a reason.
fn assert_named(what: &str, trace: &Path, device: Option<&str>) {
    let report = stdout(flashscope().arg("report").arg("--json").arg(trace));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let files = report["names"]["files"].as_array().expect("files");
    let (mut bytes, mut named, mut others) = (0, 0, Vec::new());
    for file in files.iter().filter(|file| device.is_none_or(|device| file["device"] == device)) {
        let number = |key: &str| file[key].as_u64().expect("bytes");
        let of_file = number("read_bytes").max(number("cached_bytes")) + number("written_bytes");
        assert!(file["path"].is_string() != file["unnamed"].is_string(), "{file}");
        match file["unnamed"].as_str() {
            None => (bytes, named) = (bytes + of_file, named + of_file),
            Some("metadata") => {}
            Some(_) => {
                bytes += of_file;
                others.push(file);
            }
        }
    }
    let percent = named as f64 / bytes as f64 * 100.0;
    println!("{what}: {named} of {bytes} bytes have a path: {percent:.2} %");
    assert!(bytes > 2_000_000, "{what}: {bytes} bytes");
    assert!(percent >= 99.0, "{what}: {percent:.2} %: {others:#?}");
}

/// A file system in a file of this host.
fn on_host(kind: &str) {
    let Some(dir) = TempDir::for_loops(&format!("paths-named-{kind}")) else { return };
    let work = match kind {
        "squashfs" => "cat $m/old* $m/sub/* >/dev/null".to_owned(),
        _ => format!("{WORK}; {DELETED}"),
    };
    let make = match kind {
        "squashfs" => {
            "mkdir src src/sub; for i in 1 2 3 4 5 6 7 8; do head -c 300000 /dev/urandom >src/old$i; \
             head -c 3000 /dev/urandom >src/sub/$i; done; mksquashfs src img -quiet -no-progress >/dev/null"
        }
        _ => "truncate -s 64M img; mkfs.ext4 -qF img",
    };
    let before = if kind == "squashfs" { ":" } else { BEFORE };
    // The mount is this script's alone, and ends with it.
    let script = format!(
        "set -e; cd {}; {make}; mkdir m; m=$PWD/m; export m; d=$(losetup -f --show img); \
         trap 'umount $m; losetup -d $d' EXIT; mount $d $m; {before}; cat /sys/block/${{d#/dev/}}/dev; \
         $FLASHSCOPE -q record --device ${{d#/dev/}} -o t.dat -- sh -c '{work}'",
        dir.path().display()
    );
    let flashscope = flashscope();
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("FLASHSCOPE", flashscope.get_program());
    shell.envs(flashscope.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = output(&mut shell);
    let device = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_named(kind, &dir.path().join("t.dat"), Some(&device));
}

#[test]
fn bytes_on_ext4_have_a_path() {
    on_host("ext4");
}

#[test]
fn bytes_on_squashfs_have_a_path() {
    on_host("squashfs");
}

/// A file that was made while the clock was ahead: its birth is later than all that is recorded. Renamed, it is the same file still.
#[test]
fn a_clock_that_was_set_makes_no_other_file_of_one() {
    let Some(dir) = TempDir::for_loops("paths-named-clock") else { return };
    let script = format!(
        "set -e; cd {}; truncate -s 16M img; mkfs.ext4 -qF -I 256 img; mkdir m; m=$PWD/m; export m; d=$(losetup -f --show img); \
         trap 'umount $m; losetup -d $d' EXIT; mount $d $m; head -c 16384 /dev/urandom >$m/first; umount $m; \
         debugfs -w -R 'set_inode_field first crtime 20380101000000' $d; mount $d $m; stat -c born:%w $m/first; \
         $FLASHSCOPE -q record --device ${{d#/dev/}} -o t.dat -- sh -c \
         'dd if=/dev/zero of=$m/first bs=4k count=2 conv=notrunc,fsync; sleep 1; mv $m/first $m/second; sync'",
        dir.path().display()
    );
    let flashscope = flashscope();
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("FLASHSCOPE", flashscope.get_program());
    shell.envs(flashscope.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = output(&mut shell);
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if err.contains("debugfs: not found") {
        return skip("needs debugfs of e2fsprogs");
    }
    assert!(ran.status.success() && out.contains("born:2038-01-01"), "{out}{err}");
    let report = stdout(flashscope_tests::flashscope().arg("report").arg(dir.path().join("t.dat")));
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("/second (was /"), "{report}");
    assert!(!report.contains("and before it"), "{report}");
}

/// The whole script runs under the recorder: there is nothing before it on a board.
fn on_board(what: &str, board: &str, more: &[&str], mount: &str) {
    let dir = TempDir::new(&format!("paths-named-{what}"));
    let trace = dir.path().join("t.dat");
    // UBIFS has no file handles: there such a file has no path (docs/reference/agent-protocol.md), and the reason is given.
    let deleted = if what == "ubifs" { ":" } else { DELETED };
    let script = format!("{mount}; {BEFORE}; {WORK}; {deleted}");
    let mut record = flashscope();
    record.args(["-q", "record", "--on", board, "--kernel", "6.1", "--packages", "busybox-static"]).args(more);
    stdout(record.arg("-o").arg(&trace).args(["--", "/bin/busybox", "sh", "-c", &script]));
    assert_named(what, &trace, None);
}

#[test]
fn bytes_on_f2fs_have_a_path() {
    let more = ["--events", "block,cache,syscall", "--disk", "filesystem=f2fs"];
    on_board("f2fs", "board:armv7-blk", &more, "m=/mnt");
}

#[test]
fn bytes_on_jffs2_have_a_path() {
    let more = ["--modules", "jffs2", "--events", "flash,cache,syscall"];
    on_board("jffs2", "board:armv7", &more, "m=/m; mkdir -p $m; mount -t jffs2 mtd0 $m");
}

#[test]
fn bytes_on_ubifs_have_a_path() {
    let more = ["--modules", "ubi,ubifs", "--packages", "mtd-utils", "--events", "flash,cache,syscall"];
    let mount = "/usr/sbin/ubiformat /dev/mtd0 -y -q; /usr/sbin/ubiattach -m 0; \
                 /usr/sbin/ubimkvol /dev/ubi0 -N data -s 40MiB; m=/m; mkdir -p $m; mount -t ubifs ubi0:data $m";
    on_board("ubifs", "board:armv7", &more, mount);
}
