use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::*;

struct Dir(PathBuf);

impl Dir {
    fn new(label: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("flashscope-output-{}-{label}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir(&path).unwrap();
        // Whatever the umask of this process is.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Dir(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_file_is_whole_or_as_it_was() {
    let dir = Dir::new("whole");
    let path = dir.path("t");
    std::fs::write(&path, "old").unwrap();
    let mut output = Output::create(&path, Rules::default()).unwrap();
    output.write_all(b"ne").unwrap();
    assert_eq!(read(&path), "old");
    drop(output);
    assert_eq!((read(&path).as_str(), dir.names()), ("old", vec!["t".to_owned()]));
    Output::write_whole(&path, b"new", Rules::default()).unwrap();
    assert_eq!((read(&path).as_str(), dir.names()), ("new", vec!["t".to_owned()]));
}

#[test]
fn an_input_is_no_output_by_any_of_its_names() {
    let dir = Dir::new("input");
    let path = dir.path("t");
    std::fs::write(&path, "in").unwrap();
    std::fs::hard_link(&path, dir.path("hard")).unwrap();
    symlink("t", dir.path("soft")).unwrap();
    let inputs = [HostFile::of(&path).unwrap()];
    let rules = Rules { inputs: &inputs, ..Rules::default() };
    for name in ["t", "hard", "soft"] {
        let error = Output::write_whole(&dir.path(name), b"out", rules).unwrap_err();
        assert!(matches!(error, OutputError::Input { .. }), "{name}: {error}");
    }
    assert_eq!(read(&path), "in");
    // It became an input's name while it was written.
    let mut output = Output::create(&dir.path("late"), rules).unwrap();
    output.write_all(b"out").unwrap();
    std::fs::hard_link(&path, dir.path("late")).unwrap();
    assert!(matches!(output.publish().unwrap_err(), OutputError::Input { .. }));
    assert_eq!(read(&path), "in");
}

#[test]
fn links_of_ours_are_followed_and_those_in_shared_directories_are_not() {
    let dir = Dir::new("links");
    symlink("sub/real", dir.path("soft")).unwrap();
    std::fs::create_dir(dir.path("sub")).unwrap();
    Output::write_whole(&dir.path("soft"), b"1", Rules::default()).unwrap();
    assert_eq!(read(&dir.path("sub/real")), "1");
    assert!(dir.path("soft").is_symlink());
    symlink("sub", dir.path("way")).unwrap();
    Output::write_whole(&dir.path("way/more"), b"2", Rules::default()).unwrap();
    assert_eq!(read(&dir.path("sub/more")), "2");
    for mode in [0o777, 0o1777] {
        std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(mode)).unwrap();
        for name in ["soft", "way/more"] {
            let error = Output::write_whole(&dir.path(name), b"3", Rules::default()).unwrap_err();
            assert!(matches!(error, OutputError::ForeignLink { .. }), "{name}: {error}");
        }
        Output::write_whole(&dir.path("plain"), b"4", Rules::default()).unwrap();
    }
    assert_eq!((read(&dir.path("sub/real")), read(&dir.path("sub/more"))), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn a_fifo_is_written_through() {
    for positions in [false, true] {
        let dir = Dir::new(if positions { "spooled" } else { "fifo" });
        let path = dir.path("p");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || read(&path))
        };
        let rules = Rules { positions, ..Rules::default() };
        Output::write_whole(&path, b"through", rules).unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        assert_eq!(dir.names(), ["p"]);
    }
    assert!(Output::is_through(Path::new("/dev/null")) && !Output::is_through(Path::new("/dev")));
}

#[test]
fn what_others_could_not_read_they_cannot_read_afterwards() {
    let dir = Dir::new("mode");
    let mode = |name: &str| std::fs::metadata(dir.path(name)).unwrap().permissions().mode() & 0o777;
    std::fs::write(dir.path("by-umask"), "").unwrap();
    let by_umask = mode("by-umask");
    Output::write_whole(&dir.path("new"), b"", Rules::default()).unwrap();
    assert_eq!(mode("new"), by_umask);
    Output::write_whole(&dir.path("private"), b"", Rules { private: true, ..Rules::default() }).unwrap();
    assert_eq!(mode("private"), 0o600);
    Output::write_whole(&dir.path("private"), b"again", Rules::default()).unwrap();
    assert_eq!(mode("private"), 0o600);
}

#[test]
fn earlier_files_are_kept() {
    let dir = Dir::new("kept");
    let path = dir.path("t");
    let keep = Rules { existing: Existing::KeepAsOld, ..Rules::default() };
    for text in ["1", "2", "3"] {
        assert_eq!(Output::write_whole(&path, text.as_bytes(), keep).unwrap(), path);
    }
    assert_eq!((read(&path), read(&dir.path("t.old"))), ("3".to_owned(), "2".to_owned()));
    let stays = Rules { existing: Existing::Stays("part"), ..Rules::default() };
    for name in ["t.part", "t.part.2", "t.part.3"] {
        assert_eq!(Output::write_whole(&path, name.as_bytes(), stays).unwrap(), dir.path(name));
    }
    assert_eq!((read(&path), read(&dir.path("t.part.2"))), ("3".to_owned(), "t.part.2".to_owned()));
    std::fs::write(dir.path("s"), "stream").unwrap();
    assert_eq!(set_aside(&dir.path("s"), &path, "part").unwrap(), dir.path("t.part.4"));
    Output::check(&path, keep).unwrap();
    // What is no file is not replaced by the old one, and that is said before the work.
    for place_something in [
        (|old| std::fs::create_dir(old).unwrap()) as fn(&Path),
        |old| symlink("elsewhere", old).unwrap(),
        |old| drop(UnixListener::bind(old).unwrap()),
    ] {
        let old = dir.path("t.old");
        _ = std::fs::remove_file(&old).or_else(|_| std::fs::remove_dir(&old));
        place_something(&old);
        let said = Output::check(&path, keep).unwrap_err().to_string();
        assert!(said.contains("t.old: the earlier file is to be kept under this name"), "{said}");
        assert!(Output::write_whole(&path, b"4", keep).is_err());
        assert_eq!(read(&path), "3");
        // Without an earlier file, and where none is kept, the name does not matter.
        Output::check(&dir.path("new"), keep).unwrap();
        Output::check(&path, Rules::default()).unwrap();
    }
}

/// A command that is killed while it checks leaves nothing: the directory's time of change is that of its last name.
#[test]
fn a_check_makes_no_name() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = Dir::new("checked");
    let changed = || std::fs::metadata(dir.path(".")).map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap();
    std::fs::write(dir.path("there"), "1").unwrap();
    let before = changed();
    // A clock of 10 ms at most (CONFIG_HZ=100) tells the two apart.
    std::thread::sleep(std::time::Duration::from_millis(30));
    for name in ["new", "there"] {
        Output::check(&dir.path(name), Rules::default()).unwrap();
    }
    assert_eq!(changed(), before, "file systems of the tests have files without a name: ext4, tmpfs, XFS, btrfs");
    Output::write_whole(&dir.path("new"), b"1", Rules::default()).unwrap();
    assert_ne!(changed(), before);
}

/// A file is written without a name, until it is complete, and has only its own one afterwards.
#[test]
fn a_file_that_is_being_written_has_no_name() {
    let dir = Dir::new("nameless");
    std::fs::write(dir.path("there"), "1").unwrap();
    for name in ["new", "there"] {
        let before = dir.names();
        let mut output = Output::create(&dir.path(name), Rules::default()).unwrap();
        output.write_all(b"2").unwrap();
        output.file().sync_all().unwrap();
        assert_eq!(dir.names(), before);
        output.publish().unwrap();
        assert_eq!(read(&dir.path(name)), "2");
    }
    assert_eq!(dir.names(), ["new", "there"]);
    // On file systems that have no such files.
    let place = place::find(&dir.path("old")).unwrap();
    let (file, temporary) = beside(&place.dir, &place.name, 0o600).unwrap();
    let way = Way::Beside { place: Box::new(place), temporary: Some(temporary) };
    let output = Output { path: dir.path("old"), file, way, rules: Rules::default() };
    output.publish().unwrap();
    assert_eq!(dir.names(), ["new", "old", "there"]);
}

#[test]
fn a_program_is_its_owners() {
    let dir = Dir::new("program");
    let mode = || std::fs::metadata(dir.path("p")).unwrap().permissions().mode() & 0o777;
    let rules = Rules { program: true, ..Rules::default() };
    for _ in 0..2 {
        Output::write_whole(&dir.path("p"), b"#!/bin/sh\n", rules).unwrap();
        assert_eq!(mode(), 0o700);
    }
}

#[test]
fn only_leftovers_of_ours_that_nobody_holds_are_removed() {
    let dir = Dir::new("leftovers");
    let path = dir.path("t");
    let hex = |digit: &str| format!(".t.flashscope-{}", digit.repeat(32));
    let place = place::find(&path).unwrap();
    let living = beside(&place.dir, &place.name, 0o600).unwrap();
    let held = dir.names();
    std::fs::write(dir.path(&hex("a")), "half").unwrap();
    std::fs::write(dir.path(&hex("b")), "two names").unwrap();
    std::fs::hard_link(dir.path(&hex("b")), dir.path("other")).unwrap();
    symlink("other", dir.path(&hex("c"))).unwrap();
    std::fs::write(dir.path(".t.flashscope-notes"), "mine").unwrap();
    std::fs::write(dir.path(".u.flashscope-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "of another").unwrap();
    remove_leftovers(&path);
    let names = dir.names();
    assert!(!names.contains(&hex("a")), "{names:?}");
    for kept in held.iter().chain(&[hex("b"), hex("c"), ".t.flashscope-notes".to_owned(), "other".to_owned()]) {
        assert!(names.contains(kept), "{kept}: {names:?}");
    }
    assert_eq!(names.len(), 6, "{names:?}");
    drop(living);
}

#[test]
fn what_is_no_file_of_ours_is_neither_read_nor_waited_for() {
    let dir = Dir::new("read-own");
    let at = |name: &str| dir.path(name);
    std::fs::write(at("file"), "1234").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(read_own(&at("file"), 4).unwrap(), b"1234");
    let why = |name: &str, most| read_own(&at(name), most).unwrap_err().to_string();
    assert_eq!(why("file", 3), "more than 3 bytes");
    assert_eq!(why("fifo", 4), "not a file of ours");
    assert_eq!(why("", 4), "not a file of ours");
    if crate::is_root() {
        std::os::unix::fs::chown(at("file"), Some(65534), None).unwrap();
        assert_eq!(why("file", 4), "not a file of ours");
    }
}

#[test]
fn directories_are_created_behind_no_link_of_others() {
    let dir = Dir::new("directories");
    create_directories(&dir.path("a/b/c")).unwrap();
    create_directories(&dir.path("a/b/../d/.")).unwrap();
    create_directories(Path::new("")).unwrap();
    assert!(dir.path("a/b/c").is_dir() && dir.path("a/d").is_dir());
    symlink("a", dir.path("own")).unwrap();
    create_directories(&dir.path("own/e")).unwrap();
    assert!(dir.path("a/e").is_dir(), "a link of one's own leads where it leads");
    std::fs::create_dir(dir.path("shared")).unwrap();
    std::fs::set_permissions(dir.path("shared"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("../a", dir.path("shared/link")).unwrap();
    for path in ["shared/link", "shared/link/new", "shared/link/new/below"] {
        assert!(matches!(create_directories(&dir.path(path)), Err(OutputError::ForeignLink { .. })), "{path}");
    }
    assert!(!dir.path("a/new").exists());
    std::fs::write(dir.path("file"), "").unwrap();
    assert!(create_directories(&dir.path("file/below")).is_err());
}
