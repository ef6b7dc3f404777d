//! Each option that names a file, with each kind of destination. What one output refuses, all refuse; what one writes to, all write to.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flashscope_tests::{Place, behind, cannot_record, is_root, output, said, skip, stdout, text, top};

/// Options that name a file, with the command's other words: T and U are traces, READS is one that a board recorded, S is text of strace,
/// FILE is the destination.
pub const OPTIONS: [(&str, &str); 13] = [
    ("--html", "report T --html FILE"),
    ("--perfetto", "report T --perfetto FILE"),
    ("--junit", "report T --fail-if reads>1000 --junit FILE"),
    ("--html", "diff T U --html FILE"),
    ("--junit", "diff T U --fail-if reads>1000 --junit FILE"),
    ("--html", "predict READS --html FILE"),
    ("--output", "export T --to csv -o FILE"),
    ("--output", "export T --to parquet -o FILE"),
    ("--output", "export READS --to trace.dat -o FILE"),
    ("--prometheus", "top --json -d 1 --prometheus FILE"),
    ("--script", "bench replay READS --script FILE"),
    ("--output", "bench import-strace S --under /films -o FILE"),
    ("--output", RECORD),
];
const RECORD: &str = "record --events task:task_newtask -o FILE -- true";

struct Inputs {
    place: Place,
    words: Vec<(&'static str, String)>,
    options: Vec<&'static str>,
}

fn inputs(name: &str) -> Inputs {
    let place = Place::new(name);
    let trace = |name: &str, task: &str| {
        let line = |i| format!("         {task}-7       [000] .....     {}.000000: nand_read: page={i}\n", 10 + i);
        text(&place.file(name, &format!("# tracer: nop\n{}", (0..50).map(line).collect::<String>())))
    };
    let words = vec![
        ("T", trace("t", "cat")),
        ("U", trace("u", "dog")),
        ("S", text(&crate::outputs::strace(&place, "s"))),
        ("READS", text(&top().join("tests/outputs/reads.stream"))),
    ];
    let records = |option: &&str| option.starts_with("record") || option.starts_with("top");
    let all = OPTIONS.into_iter().map(|(_, line)| line);
    let options = match cannot_record() {
        None => all.collect(),
        Some(why) => {
            skip(why);
            all.filter(|option| !records(option)).collect()
        }
    };
    Inputs { place, words, options }
}

impl Inputs {
    fn command(&self, option: &str, file: &Path) -> Command {
        let word = |word: &str| match self.words.iter().find(|(name, _)| *name == word) {
            Some((_, path)) => path.clone(),
            None if word == "FILE" => text(file),
            None => word.to_owned(),
        };
        let argv: Vec<String> = option.split(' ').map(word).collect();
        self.place.command(&argv.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn written(&self, option: &str, file: &Path) {
        let ran = output(&mut self.command(option, file));
        assert!(ran.status.success(), "{option}: {}", said(&ran));
    }

    /// One line that names the file, exit status 1 (125 of `record`), and no result.
    fn refused(&self, option: &str, file: &Path, words: &str) {
        let ran = output(&mut self.command(option, file));
        let said = said(&ran);
        let errors: Vec<&str> = said.lines().filter(|line| !line.starts_with('[')).collect();
        assert_eq!(ran.status.code(), Some(if option == RECORD { 125 } else { 1 }), "{option}: {said}");
        assert!(ran.stdout.is_empty(), "{option}: a result before the refusal");
        assert_eq!(errors.len(), 1, "{option}: {said}");
        assert!(errors[0].starts_with(&format!("flashscope: {}: ", file.display())), "{option}: {said}");
        assert!(errors[0].contains(words), "{option}: {words:?} is not in: {said}");
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.at(name)
    }
}

fn listing(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_output_is_written_where_the_user_says() {
    let inputs = inputs("matrix-written");
    for (number, option) in inputs.options.iter().enumerate() {
        let dir = inputs.at(&number.to_string());
        std::fs::create_dir(&dir).expect("a directory");
        let whole = |name: &str| {
            let size = std::fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
            assert!(size > 20, "{option}: {name} has {size} bytes");
        };
        // As long as a name can be.
        let long = "n".repeat(255);
        inputs.written(option, &dir.join(&long));
        whole(&long);
        std::fs::write(dir.join("first"), "the first").expect("a file");
        std::fs::hard_link(dir.join("first"), dir.join("second")).expect("a link");
        inputs.written(option, &dir.join("second"));
        whole("second");
        assert_eq!(std::fs::read_to_string(dir.join("first")).expect("a file"), "the first", "{option}");
        symlink("target", dir.join("link")).expect("a link");
        for _ in 0..2 {
            inputs.written(option, &dir.join("link"));
            whole("target");
            assert!(dir.join("link").is_symlink(), "{option}");
        }
        stdout(Command::new("mkfifo").arg(dir.join("fifo")));
        let read = std::fs::File::create(dir.join("read")).expect("a file");
        let mut reader = Command::new("cat").arg(dir.join("fifo")).stdout(read).spawn().expect("cat");
        inputs.written(option, &dir.join("fifo"));
        assert!(reader.wait().expect("it ends").success(), "{option}");
        whole("read");
        let mut left = listing(&dir);
        // Recordings keep what had their names.
        left.retain(|name| !name.ends_with(".old"));
        assert_eq!(left, ["fifo", "first", "link", &long, "read", "second", "target"], "{option}");
    }
}

#[test]
fn every_output_is_refused_where_it_would_harm() {
    if !is_root() {
        return skip("needs root, to plant links as another user");
    }
    let inputs = inputs("matrix-refused");
    let (shared, victim) = (inputs.at("shared"), inputs.at("victim"));
    std::fs::create_dir(&shared).expect("a directory");
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).expect("permissions");
    std::fs::write(&victim, "root's own").expect("a file");
    let plant = "ln -s ../victim shared/link; ln -s ../nothing shared/dangling; mkfifo shared/fifo";
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/bin/sh", "-c", plant]);
    stdout(other.current_dir(inputs.place.dir.path()));
    let _socket = std::os::unix::net::UnixListener::bind(inputs.at("socket")).expect("a socket");
    let before = listing(&shared);
    for option in &inputs.options {
        for (name, words) in [
            ("shared/link", "symbolic link in a directory that others can write to"),
            ("shared/dangling", "symbolic link in a directory that others can write to"),
            ("shared/fifo", "somebody else put this FIFO"),
            ("socket", "this is a socket"),
        ] {
            inputs.refused(option, &inputs.at(name), words);
        }
        assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "root's own", "{option}");
        assert!(!inputs.at("nothing").exists(), "{option}");
        assert_eq!(listing(&shared), before, "{option}");
    }
}

#[test]
fn no_output_takes_the_place_of_a_device() {
    if !is_root() {
        return skip("needs root, to make a device node in a mount namespace of its own");
    }
    let inputs = inputs("matrix-devices");
    let dir = inputs.at("dev");
    std::fs::create_dir(&dir).expect("a directory");
    let script = "mount -t tmpfs none \"$1\"; mknod \"$1/null\" c 1 3; mknod \"$1/full\" c 1 7; dir=$1; shift; \
                  \"$@\" >/dev/null; echo \"status $?\"; stat -c '%F %t %T' \"$dir/null\" \"$dir/full\"; ls -A \"$dir\"";
    for option in &inputs.options {
        for (name, status) in [("null", 0), ("full", if *option == RECORD { 125 } else { 1 })] {
            let unshare = ["unshare", "-m", "/bin/sh", "-c", script, "sh", &text(&dir)];
            let ran = output(behind(&unshare, &inputs.command(option, &dir.join(name))).stdin(Stdio::null()));
            let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
            let expected =
                format!("status {status}\ncharacter special file 1 3\ncharacter special file 1 7\nfull\nnull\n");
            assert_eq!(printed, expected, "{option} to {name}: {}", said(&ran));
        }
    }
    assert!(std::fs::metadata("/dev/null").expect("the device").file_type().is_char_device());
    assert_eq!(std::fs::metadata("/dev/null").expect("the device").rdev(), 0x103);
}
