//! Paths of files that a recording on this host finds, and how long it may look for them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashscope_tests::{LoopDisk, TempDir, can_record_loops, flashscope, output, skip, stdout, top};
use flashscope_trace::Trace;
use serde_json::Value;

/// What the agent alone finds: the facts' `names`, and how long all of it took.
fn names(dir: &Path, more: &[&str]) -> (Value, Duration) {
    let stream = dir.join("t.stream");
    let mut agent = Command::new(flashscope_targets::host_agent().expect("an agent"));
    agent.args(["record", "--events", "block,syscall,cache", "--paths", "auto", "-o"]).arg(&stream).args(more);
    let began = Instant::now();
    let ran = output(&mut agent);
    let took = began.elapsed();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace = Trace::open(&stream).expect("a stream");
    (trace.facts_json()["names"].clone(), took)
}

/// The search has a second after two seconds of recording: this host's file systems hold more than it can read in that time.
#[test]
fn a_recording_ends_in_time() {
    let Some(dir) = TempDir::for_loops("paths-time") else { return };
    let (names, took) = names(dir.path(), &["-d", "2"]);
    let search = &names["search"][0];
    assert_eq!(search["limit_ms"], 1000, "{search}");
    let searched = search["took_ms"].as_u64().expect("a time");
    println!("-d 2 took {took:?}, {searched} ms of them for names");
    // What is found has to be written, and a busy machine may stand still.
    assert!(searched < 2000, "{search}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    for file in names["files"].as_array().into_iter().flatten() {
        assert!(file["path"].is_string() || file["why"].is_string(), "{file}");
    }
    // Without -d as before.
    let (names, _) = self::names(dir.path(), &["--", "true"]);
    assert_eq!(names["search"][0]["limit_ms"], 5000);
    stdout(Command::new("rm").arg(dir.path().join("t.stream")));
}

/// A process whose memory is locked for ever (names/stuck.c): reading its command line waits without end, and the recorder does not.
#[test]
fn a_process_that_never_answers_holds_nothing_up() {
    if !can_record_loops() || !Path::new("/dev/fuse").exists() {
        return skip("needs root and FUSE");
    }
    let dir = TempDir::new("paths-stuck");
    let (program, mount) = (dir.path().join("stuck"), dir.path().join("m"));
    std::fs::create_dir(&mount).expect("a directory");
    stdout(Command::new("cc").arg("-o").arg(&program).arg(top().join("tests/names/stuck.c")));
    let mut stuck = Command::new("unshare").arg("-m").arg(&program).arg(&mount).stdout(Stdio::piped()).spawn();
    let stuck = stuck.as_mut().expect("a process");
    let mut line = String::new();
    BufReader::new(stuck.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let recorded = (line == "ready\n").then(|| names(dir.path(), &["-d", "1"]));
    // Everything that looks at processes of this machine waits for it, too: it ends before anything is asserted.
    stuck.kill().expect("to end it");
    stuck.wait().expect("its end");
    let (names, took) = recorded.expect("that it is stuck");
    let search = &names["search"][0];
    println!("took {took:?}; {search}");
    assert!(search["processes_stuck"].as_u64() >= Some(1), "{search}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    let rows = names["processes"].as_array().expect("processes");
    let own = rows.iter().find(|one| one["pid"] == stuck.id()).expect("its row");
    assert!(own["command"].is_null() && own["name"] == "stuck", "{own}");
    assert!(rows.iter().filter(|one| one["command"].is_string()).count() > 1, "others have theirs");
}

/// What recordings of a file system of its own say.
struct Disk(LoopDisk);

impl Disk {
    fn new(name: &str) -> Option<Disk> {
        Disk::with(name, 64, "mkfs.ext4 -q -F image")
    }

    fn with(name: &str, mib: u32, mkfs: &str) -> Option<Disk> {
        LoopDisk::new(name, mib, mkfs, &[], "defaults").map(Disk)
    }

    fn mount(&self) -> &Path {
        &self.0.mounted.0
    }

    /// Names, where the shell does `work` on the mounted file system, `$m`.
    fn names(&self, work: &str) -> Value {
        self.names_of(&[], work)
    }

    /// The same, of some tasks alone.
    fn names_of(&self, filter: &[&str], work: &str) -> Value {
        let work = format!("set -e; m={}; {work}", self.mount().display());
        let device = ["--device", self.0.device.name()];
        names(self.0.path(), &[&device, filter, &["--", "sh", "-c", &work]].concat()).0
    }

    /// Path below the mount and bytes written, of each file of the recording.
    fn written(&self) -> Vec<(String, u64)> {
        let report = stdout(flashscope().arg("report").arg(self.0.path().join("t.stream")).arg("--json"));
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let mount = self.mount().display().to_string();
        let files = report["names"]["files"].as_array().expect("files");
        let path = |file: &Value| {
            file["path"].as_str().map_or_else(|| file["unnamed"].to_string(), |path| path.replace(&mount, ""))
        };
        files
            .iter()
            .map(|file| (path(file), file["written_bytes"].as_u64().expect("bytes")))
            .filter(|file| file.1 > 0)
            .collect()
    }
}

/// Files that nobody has open any more are found without a search, also those that are renamed or deleted later.
#[test]
fn a_closed_file_is_named_without_a_search() {
    let Some(disk) = Disk::new("paths-closed") else { return };
    let names = disk.names(
        "mkdir -p $m/a/b; for f in a/b/kept first dead; do dd if=/dev/zero of=$m/$f bs=64k count=2 conv=fsync status=none; done
        sleep 1; mv $m/first $m/a/second; rm $m/dead; echo text >\"$m/y (deleted)\"",
    );
    assert_eq!(names["search"][0]["directories"], 0, "{}", names["search"]);
    let written = disk.written();
    let mount = disk.mount().display().to_string();
    for wanted in ["/a/b/kept", &format!("/a/second (was {mount}/first)").replace(&mount, ""), "/dead (deleted)"] {
        assert!(written.contains(&(wanted.to_owned(), 131_072)), "{wanted}: {written:?}");
    }
    assert!(written.iter().any(|(path, _)| path == "/y (deleted)"), "{written:?}");
}

/// ext4 gives the number of a deleted file to the next one.
#[test]
fn files_of_one_inode_number_are_told_apart() {
    let Some(disk) = Disk::new("paths-reused") else { return };
    let names = disk.names(
        "for n in 1 2 3; do dd if=/dev/zero of=$m/file$n bs=4k count=$n conv=fsync status=none; stat -c %i $m/file$n >>$m/../inodes
        sleep 0.5; [ $n = 3 ] || rm $m/file$n; done",
    );
    let inodes = std::fs::read_to_string(disk.0.path().join("inodes")).expect("inode numbers");
    let inodes: Vec<&str> = inodes.lines().collect();
    assert!(inodes.len() == 3 && inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    let inode: u64 = inodes[0].parse().expect("a number");
    let rows = names["files"].as_array().expect("files").iter().filter(|file| file["inode"] == inode).count();
    assert_eq!(rows, 3, "{names}");
    let written = disk.written();
    for (file, bytes) in [("/file1 (deleted)", 4096), ("/file2 (deleted)", 8192), ("/file3", 12288)] {
        assert!(written.contains(&(file.to_owned(), bytes)), "{file}: {written:?}");
    }
}

/// Files that are gone before the recorder looks for any: of one inode number one after the other, in directories that go with them,
/// without a name, and replaced. The workload's own text says what each is called and how long it is. A recording of its tasks alone
/// must say the same.
fn files_that_are_gone(disk: &Disk) {
    let program = disk.0.path().join("workload");
    stdout(Command::new("cc").arg("-o").arg(&program).arg(top().join("tests/names/gone.c")));
    let work = format!("rm -rf $m/*; {} $m >$m/../log", program.display());
    for round in 0..3 {
        let names = disk.names(&work);
        assert_eq!(names["search"][0]["notify_overflows"], 0, "{}", names["search"]);
        assert_as_logged(disk, &format!("round {round}"));
    }
    disk.names_of(&["--comm", "workload"], &work);
    assert_as_logged(disk, "--comm");
    let mut shell = Command::new("sh").args(["-c", "read line; exec sh -c \"$line\""]).stdin(Stdio::piped()).spawn();
    let shell = shell.as_mut().expect("a process");
    let (pid, pipe) = (shell.id().to_string(), disk.0.path().join("pipe"));
    stdout(Command::new("mkfifo").arg(&pipe));
    // The recorded command lets the process go on, and waits until it has no files open.
    let line = format!("m={}; {work}; exec >{}", disk.mount().display(), pipe.display());
    let begin = format!("echo '{line}' >/proc/{pid}/fd/0; cat $m/../pipe");
    disk.names_of(&["--pid", &pid], &begin);
    shell.wait().expect("its end");
    assert_as_logged(disk, "--pid");
    let Some(group) = Group::new(&format!("flashscope-paths-{}", std::process::id())) else {
        return println!("--cgroup: no file system of cgroups is writable");
    };
    // The recorder looks for new tasks of the group at each drain.
    let join = format!("echo 0 >{}/cgroup.procs; sleep 1; {work}", group.0.display());
    disk.names_of(&["--cgroup", &group.0.display().to_string()], &join);
    assert_as_logged(disk, "--cgroup");
}

/// A cgroup of its own, v2 or v1.
struct Group(std::path::PathBuf);

impl Group {
    fn new(name: &str) -> Option<Group> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let group = Group(root.join(name));
        std::fs::create_dir(&group.0).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).unwrap_or_else(|error| println!("{}: {error}", self.0.display()));
    }
}

/// The log of gone.c has bytes and name of each file.
fn assert_as_logged(disk: &Disk, what: &str) {
    let log = std::fs::read_to_string(disk.0.path().join("log")).expect("a log");
    let mut wanted = BTreeMap::<String, u64>::new();
    for line in log.lines() {
        let (bytes, path) = line.split_once(' ').expect("bytes and a path");
        *wanted.entry(path.replace(&disk.mount().display().to_string(), "")).or_default() +=
            bytes.parse::<u64>().expect("bytes");
    }
    let mut shown = BTreeMap::<String, u64>::new();
    for (path, bytes) in disk.written() {
        let path = path.split(" (").next().expect("a path").to_owned();
        let path = if path.starts_with("/#") { "/#".to_owned() } else { path };
        *shown.entry(path).or_default() += bytes;
    }
    let wrong: Vec<_> = wanted.iter().filter(|(path, bytes)| shown.get(*path) != Some(*bytes)).collect();
    assert!(wanted.len() > 200 && wrong.is_empty(), "{what}: {wrong:?} of {shown:?}");
}

#[test]
fn files_that_are_gone_at_once_have_their_own_names() {
    if !can_record_loops() {
        return;
    }
    if !Path::new("/proc/sys/fs/fanotify").exists() {
        return skip("needs CONFIG_FANOTIFY");
    }
    let Some(disk) = Disk::new("paths-gone") else { return };
    files_that_are_gone(&disk);
}

/// XFS frees inodes in a worker of the kernel, and gives their numbers to the next files.
#[test]
fn files_that_are_gone_at_once_on_xfs_have_their_own_names() {
    if !can_record_loops() {
        return;
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").expect("file systems");
    let tool = output(Command::new("sh").args(["-c", "command -v mkfs.xfs"]));
    if !Path::new("/proc/sys/fs/fanotify").exists() || !filesystems.contains("xfs") || !tool.status.success() {
        return skip("needs CONFIG_FANOTIFY, XFS and its tools");
    }
    let Some(disk) = Disk::with("paths-gone-xfs", 320, "mkfs.xfs -q image") else { return };
    files_that_are_gone(&disk);
}

/// A file that lies behind another mount at the end, and one that had no name when it was seen first: neither is deleted.
#[test]
fn files_that_no_path_leads_to_for_a_time_are_named() {
    if !Path::new("/proc/sys/fs/fanotify").exists() {
        return skip("needs CONFIG_FANOTIFY");
    }
    let Some(disk) = Disk::new("paths-hidden") else { return };
    let (program, hidden) = (disk.0.path().join("workload"), disk.mount().join("hidden"));
    stdout(Command::new("cc").arg("-o").arg(&program).arg(top().join("tests/names/linked_later.c")));
    let names = disk.names(&format!(
        "{} $m; mkdir $m/hidden; dd if=/dev/zero of=$m/hidden/file bs=4k count=4 conv=fsync status=none; mount -t tmpfs none $m/hidden",
        program.display()
    ));
    stdout(Command::new("umount").arg(&hidden));
    let written = disk.written();
    assert!(written.contains(&("/linked".to_owned(), 8192)), "{written:?}");
    let of_hidden = |file: &&Value| file["path"] == hidden.join("file").display().to_string();
    let files = names["files"].as_array().expect("files");
    let file = files.iter().find(of_hidden).unwrap_or_else(|| panic!("{names}"));
    assert!(file["state"] != "deleted", "{file}");
}

/// A btrfs, or the reason why not.
fn btrfs(label: &str) -> Option<Disk> {
    if !can_record_loops() {
        return None;
    }
    let tools =
        ["mkfs.btrfs", "btrfs"].map(|tool| output(Command::new("sh").args(["-c", &format!("command -v {tool}")])));
    if tools.iter().any(|tool| !tool.status.success())
        || !stdout(Command::new("cat").arg("/proc/filesystems")).contains("btrfs")
    {
        skip("needs btrfs and its tools");
        return None;
    }
    Disk::with(label, 256, "mkfs.btrfs -q -f image")
}

/// btrfs gives a number to one file alone. Its first name may be another file's later: then it is not this one's.
#[test]
fn a_file_of_btrfs_has_its_last_name() {
    if !Path::new("/proc/sys/fs/fanotify").exists() {
        return skip("needs CONFIG_FANOTIFY");
    }
    let Some(disk) = btrfs("paths-renames") else { return };
    let program = disk.0.path().join("workload");
    stdout(Command::new("cc").arg("-o").arg(&program).arg(top().join("tests/names/renames.c")));
    // Of files that are open longer than a round of the recorder, the first name is seen.
    for (mode, open_us) in [("auto", "0"), ("auto", "130000"), ("seen", "0"), ("seen", "130000")] {
        let work = format!("rm -rf $m/*; {} $m {open_us} >$m/../log", program.display());
        let names = disk.names_of(&["--paths", mode], &work);
        let log = std::fs::read_to_string(disk.0.path().join("log")).expect("a log");
        let mount = format!("{}/", disk.mount().display());
        let rows = names["files"].as_array().expect("files");
        let (mut right, mut files) = (0, 0);
        for (inode, last) in log.lines().filter_map(|line| line.split_once(' ')) {
            let inode: u64 = inode.parse().expect("a number");
            files += 1;
            // Other file systems of this machine have such numbers, too.
            let paths = rows.iter().filter(|row| row["inode"] == inode).filter_map(|row| row["path"].as_str());
            for path in paths.filter_map(|path| path.strip_prefix(&mount)) {
                assert_eq!(path, last, "{mode} {open_us}: inode {inode}");
                right += 1;
            }
        }
        println!("{mode}, open for {open_us} us: {right} of {files} files have their last name");
        assert!(files == 80 && right >= files * 95 / 100, "{mode} {open_us}: {right} of {files}");
    }
}

/// Subvolumes of a btrfs number their inodes alike, and events do not say which one a file is of: no name stands for both.
#[test]
fn files_of_two_subvolumes_with_one_number_are_both_named() {
    let Some(disk) = btrfs("paths-btrfs") else { return };
    let names = disk.names(
        "btrfs -q subvolume create $m/a; btrfs -q subvolume create $m/b
        for f in a/one b/two a/alone; do dd if=/dev/zero of=$m/$f bs=4k count=3 conv=fsync status=none; stat -c %i $m/$f >>$m/../inodes; done
        for f in a/gone b/stays; do dd if=/dev/zero of=$m/$f bs=4k count=3 conv=fsync status=none; stat -c %i $m/$f >>$m/../inodes; done
        rm $m/a/gone
        dd if=/dev/zero of=$m/b/takes bs=4k count=3 conv=fsync status=none; stat -c %i $m/b/takes >>$m/../inodes",
    );
    let inodes = std::fs::read_to_string(disk.0.path().join("inodes")).expect("inode numbers");
    let inodes: Vec<u64> = inodes.lines().map(|line| line.parse().expect("a number")).collect();
    let &[one, two, alone, gone, stays, takes] = inodes.as_slice() else { panic!("{inodes:?}") };
    assert!(one == two && alone == stays && gone == takes, "{inodes:?}");
    let mount = disk.mount().display().to_string();
    let rows = names["files"].as_array().expect("files");
    let row = |inode: u64| {
        let of =
            |row: &&Value| row["inode"] == inode && row["path"].as_str().is_none_or(|path| path.starts_with(&mount));
        rows.iter().find(of).unwrap_or_else(|| panic!("{inode}: {names}"))
    };
    let both = |row: &Value| {
        let mut both = ["path", "or"].map(|key| row[key].as_str().unwrap_or("").replace(&mount, ""));
        both.sort();
        both
    };
    assert_eq!(both(row(one)), ["/a/one", "/b/two"]);
    assert_eq!(both(row(alone)), ["/a/alone", "/b/stays"]);
    // Deleted in one, and there in the other: the living one's name is not all of it.
    let [first, second] = both(row(gone));
    assert!(["/a", "/a/gone"].contains(&&*first) && second == "/b/takes", "{first} {second}");
    let report =
        stdout(flashscope().args(["report", "--json"]).arg(disk.0.path().join("t.stream"))).replace(&mount, "");
    let shown = |path: &str, other: &str| {
        report.contains(&format!("{path} (or {other}: same inode number in another subvolume)"))
    };
    assert!(shown("/a/one", "/b/two") || shown("/b/two", "/a/one"), "{report}");
    // In the first subvolume alone.
    let names = disk.names("for f in first second; do dd if=/dev/zero of=$m/a/$f bs=4k count=3 conv=fsync status=none; done; stat -c %i $m/a/second >$m/../inodes");
    let inode = std::fs::read_to_string(disk.0.path().join("inodes")).expect("an inode number");
    let inode: u64 = inode.trim().parse().expect("a number");
    let rows = names["files"].as_array().expect("files");
    let second = rows
        .iter()
        .find(|row| row["inode"] == inode && row["path"].as_str().is_some_and(|path| path.starts_with(&mount)));
    let second = second.unwrap_or_else(|| panic!("{inode}: {names}"));
    assert_eq!(both(second), ["", "/a/second"]);
}

/// A snapshot has the numbers of all files, and the entry of a subvolume in its directory has the subvolume's id as a number.
#[test]
fn files_of_three_subvolumes_and_ids_of_subvolumes_are_no_other_files() {
    let Some(disk) = btrfs("paths-snapshots") else { return };
    let names = disk.names(
        "for s in a b c d e; do btrfs -q subvolume create $m/$s; done
        for f in a/1 a/2 a/3 b/1 b/2 b/3 b/4 b/5 b/6; do dd if=/dev/zero of=$m/$f bs=4k count=3 conv=fsync status=none; done
        btrfs -q subvolume snapshot $m/b $m/snapshot >/dev/null; dd if=/dev/zero of=$m/snapshot/1 bs=4k count=3 conv=fsync,notrunc status=none
        for f in a/1 b/6; do stat -c %i $m/$f >>$m/../inodes; done
        echo 3 >$m/b/6; sync $m/b/6",
    );
    let inodes = std::fs::read_to_string(disk.0.path().join("inodes")).expect("inode numbers");
    let inodes: Vec<u64> = inodes.lines().map(|line| line.parse().expect("a number")).collect();
    let mount = disk.mount().display().to_string();
    let rows = names["files"].as_array().expect("files");
    let of_mount = |row: &&Value| row["path"].as_str().is_some_and(|path| path.starts_with(&mount));
    let row = |inode: u64| rows.iter().filter(of_mount).find(|row| row["inode"] == inode).expect("a row");
    let first = row(inodes[0]);
    assert!(first["or"].is_string() && first["or_others"] == true, "{first}");
    let sixth = row(inodes[1]);
    assert!(sixth["path"].as_str().is_some_and(|path| path.ends_with("/6")), "{sixth}");
    // 256 is the number of each subvolume's own directory.
    for row in rows.iter().filter(of_mount).filter(|row| row["inode"].as_u64() > Some(256)) {
        let name = row["path"].as_str().and_then(|path| path.strip_prefix(&mount)).expect("below the mount");
        assert!(name.matches('/').count() == 2, "a subvolume is no file: {row}");
    }
}

/// Nothing of a report calls a device's page cache `0:3 inode 266338304`.
#[test]
fn a_devices_own_pages_are_named() {
    let Some(disk) = Disk::new("paths-own") else { return };
    // The inode table comes through the page cache of the device; so does a raw read of it.
    disk.names("umount $m; mount $(losetup -nO NAME -j $m/../image) $m; for n in 1 2 3; do echo $n >$m/$n; done; sync; dd if=$(losetup -nO NAME -j $m/../image) of=/dev/null bs=64k count=16 status=none");
    let report = stdout(flashscope().arg("report").arg(disk.0.path().join("t.stream")).arg("--json"));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let name = format!("metadata of {} (ext4, ", disk.0.device.name());
    let files = report["names"]["files"].as_array().expect("files");
    let own: Vec<&Value> = files.iter().filter(|file| file["unnamed"] == "metadata").collect();
    assert!(own.iter().any(|file| file["what"].as_str().is_some_and(|what| what.starts_with(&name))), "{own:?}");
    assert!(own.iter().all(|file| file["what"].is_string()), "{own:?}");
}

/// A file of an overlay's upper layer is what the overlay calls it, of a container's what the container does.
#[test]
fn files_of_an_overlay_are_named_in_it() {
    let Some(disk) = Disk::new("paths-overlay") else { return };
    // The second overlay is in a mount namespace of its own, which lives until the end.
    let names = disk.names(
        "mkdir -p $m/low $m/up $m/work $m/up2 $m/work2 $m/merged $m/inner; echo text >$m/low/base; sync
        mount -t overlay -o lowerdir=$m/low,upperdir=$m/up,workdir=$m/work overlay $m/merged
        dd if=/dev/zero of=$m/merged/mine bs=4k count=3 conv=fsync status=none
        unshare -m sh -c 'mount -t overlay -o lowerdir='$m'/low,upperdir='$m'/up2,workdir='$m'/work2 overlay '$m'/inner
            dd if=/dev/zero of='$m'/inner/theirs bs=4k count=5 conv=fsync status=none; exec sleep 5' &
        sleep 1.5",
    );
    let rows = names["files"].as_array().expect("files");
    let mount = disk.mount().display().to_string();
    let row = |layer: &str| {
        let layer = format!("{mount}{layer}");
        rows.iter().find(|row| row["layer"] == *layer).unwrap_or_else(|| panic!("{layer}: {names}"))
    };
    assert_eq!(row("/up/mine")["path"], format!("{mount}/merged/mine"));
    assert!(row("/up/mine")["mnt_ns"].is_null());
    assert_eq!(row("/up2/theirs")["path"], format!("{mount}/inner/theirs"));
    assert!(row("/up2/theirs")["mnt_ns"].is_u64());
    let written = disk.written();
    assert!(written.contains(&("/merged/mine (in an overlay)".to_owned(), 12288)), "{written:?}");
    let theirs = |(path, bytes): &(String, u64)| path.starts_with("/inner/theirs (in container ") && *bytes == 20480;
    assert!(written.iter().any(theirs), "{written:?}");
}

/// Calls name no device: those of files elsewhere are in the recording, and in no figure of a report of one device.
#[test]
fn calls_of_other_devices_are_in_no_figure() {
    let (Some(disk), Some(other)) = (Disk::new("paths-device"), Disk::new("paths-other-device")) else { return };
    let elsewhere = other.mount().join("elsewhere");
    disk.names(&format!(
        "for i in 1 2 3; do dd if=/dev/zero of={} bs=64k count=1 conv=fsync; done 2>/dev/null; \
         dd if=/dev/zero of=$m/../on-the-host bs=4k count=16 2>/dev/null; \
         dd if=/dev/zero of=$m/here bs=64k count=1 conv=fsync 2>/dev/null",
        elsewhere.display()
    ));
    let stream = disk.0.path().join("t.stream");
    let report = stdout(flashscope().args(["report", "--json"]).arg(&stream));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let calls = &report["calls"];
    let groups = calls["by_process"].as_array().expect("calls");
    // Events of writeback name the disk that the loop device's file lies on, whatever file it is.
    let files =
        calls["by_file"].as_array().expect("calls").iter().chain(report["names"]["files"].as_array().expect("files"));
    let host = |file: &Value| file["path"].as_str().is_some_and(|path| path.ends_with("/on-the-host"));
    assert_eq!(files.filter(|file| host(file)).collect::<Vec<_>>(), Vec::<&Value>::new());
    let syncs: u64 = groups.iter().filter(|one| one["call"] == "fsync").filter_map(|one| one["ns"]["n"].as_u64()).sum();
    assert_eq!(syncs, 1, "{groups:?}");
    assert!(calls["not_of_device_syncs"].as_u64() >= Some(3), "{calls}");
    let text = stdout(flashscope().arg("report").arg(&stream));
    assert!(text.contains("caused no event on the recorded device"), "{text}");
}

/// Of more files than fanotify's reports are kept for, those that have no path are counted, and the report says so.
#[test]
fn files_that_were_reported_and_forgotten_are_counted() {
    if !Path::new("/proc/sys/fs/fanotify").exists() {
        return skip("needs CONFIG_FANOTIFY");
    }
    let Some(disk) = Disk::new("paths-many") else { return };
    let make = "for d in $(seq 100); do mkdir $m/$d; for f in $(seq 100); do echo >$m/$d/$f; done; done";
    // 10,000 files that stay are found without a report.
    let names = disk.names(make);
    assert_eq!(names["search"][0]["notify_dropped"], 0, "{}", names["search"]);
    // 10,000 are deleted while the recorder stands still: 8,192 reports are kept.
    // Between two stops the recorder may have named them all: then again.
    let gone = format!("rm -r $m/[0-9]*; {make}; kill -STOP $PPID; rm -r $m/[0-9]*; kill -CONT $PPID; sleep 1; {make}");
    let count = |names: &Value| names["search"][0]["notify_dropped"].as_u64().expect("a count");
    let all = (0..10).map(|_| disk.names(&gone)).inspect(|names| println!("{}", names["search"]));
    let names = all.enumerate().find(|(at, names)| count(names) > 0 || *at == 9).expect("ten recordings").1;
    let dropped = count(&names);
    assert!(dropped > 0 && dropped <= 10_000, "{}", names["search"]);
    let trace = Trace::open(&disk.0.path().join("t.stream")).expect("a stream");
    assert_eq!(trace.losses().get(flashscope_trace::Loss::FileReportsDropped), dropped);
    let text = stdout(flashscope().arg("report").arg(disk.0.path().join("t.stream")));
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("the recorder forgot them"), "{text}");
}
