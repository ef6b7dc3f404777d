//! Input that asks for more than there is: whole commands stay within their memory and time, and do not panic.

#[path = "../fuzz/structured.rs"]
#[allow(dead_code, reason = "the fuzz targets make whole streams of bytes")]
pub mod structured;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashscope_tests::{TempDir, flashscope, output, stdout};
use structured::Writer;

/// What a command may take for a trace of up to a mebibyte: memory, beside 1 KiB for each event, and time.
const MEMORY: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(10);
const MEBIBYTE: usize = 1 << 20;
/// Without optimisation everything takes many times as long: an eighth of that, and a minute of processor time.
fn is_unoptimised() -> bool {
    cfg!(debug_assertions) && optimised().is_none()
}

/// `FLASHSCOPE_TEST_OPTIMISED=target/release/flashscope`: an optimised command, on inputs of a whole mebibyte.
fn optimised() -> Option<PathBuf> {
    std::env::var_os("FLASHSCOPE_TEST_OPTIMISED").map(|path| flashscope_tests::top().join(path))
}

fn most_bytes() -> usize {
    if is_unoptimised() { MEBIBYTE / 8 } else { MEBIBYTE }
}

const DISK: u64 = 8 << 20;
const SECOND: u64 = 1_000_000_000;

#[test]
fn the_removed_command_names_what_is_there_instead() {
    let tried = output(flashscope().args(["policy", "trace.dat", "--latency-ms", "2"]));
    let stderr = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(tried.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("flashscope: policy was removed in 0.2.0"), "{stderr}");
    assert!(stderr.contains("flashscope advise TRACE") && stderr.contains("flashscope predict TRACE"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// A record of blktrace, version 7: 4096 bytes, process 1, device 8:0, CPU 0.
fn record(bytes: &mut Vec<u8>, time: u64, sector: u64, action: u32, error: u32) {
    bytes.extend(0x6561_7407_u32.to_le_bytes());
    bytes.extend((bytes.len() as u32 / 48 + 1).to_le_bytes());
    bytes.extend(time.to_le_bytes());
    bytes.extend(sector.to_le_bytes());
    for field in [4096_u32, action, 1, 8 << 20, 0, error] {
        bytes.extend(field.to_le_bytes());
    }
}

/// Queued, issued and completed reads (`blktrace_api.h`).
const QUEUED: u32 = 0x0011_0001;
const ISSUED: u32 = 0x0041_0007;
const COMPLETED: u32 = 0x0081_0008;

/// Two requests' queueing, at these times.
fn blktrace(times: [u64; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, time) in (1..).zip(times) {
        record(&mut bytes, time, number * 8, QUEUED, 0);
    }
    bytes
}

/// Requests that fail after 292 years each, anywhere on a disk: sums of their times and products of their places are past 64 bits.
#[test]
fn the_longest_times_and_the_furthest_sectors_do_not_overflow() {
    let dir = TempDir::new("longest-times");
    let path = dir.path().join("long.blktrace.0");
    let mut bytes = Vec::new();
    let sector = |n: u64| u64::MAX / 8000 * n;
    for n in 0..7000 {
        record(&mut bytes, 1 + n, sector(n), QUEUED, 0);
        record(&mut bytes, 1 + n, sector(n), ISSUED, 0);
    }
    for n in 0..7000 {
        // The first at once, the others ever later.
        let time = i64::MAX as u64 / 7000 * n + 10_000;
        record(&mut bytes, time, sector(n), COMPLETED, 5);
    }
    std::fs::write(&path, bytes).unwrap();
    let report = flashscope_tests::report(&path);
    assert_eq!(report["block"]["stages"]["bios_completed"], 7000);
    stdout(flashscope().arg("report").arg(&path).arg("--html").arg(dir.path().join("page")));
}

#[test]
fn times_that_no_clock_gives_are_counted() {
    let dir = TempDir::new("odd-times");
    for times in [[1, u64::MAX - 1], [1, 1 << 63], [1, u64::MAX]] {
        let path = dir.path().join("odd.blktrace.0");
        std::fs::write(&path, blktrace(times)).unwrap();
        let report = flashscope_tests::report(&path);
        let odd = report["losses"].as_array().unwrap().iter().find(|loss| loss["name"] == "times_impossible").unwrap();
        assert_eq!((&odd["count"], &report["block"]["stages"]["bios_queued"]), (&1.into(), &1.into()), "{times:?}");
    }
    // As long as a clock can go.
    let path = dir.path().join("long.blktrace.0");
    std::fs::write(&path, blktrace([1, i64::MAX as u64])).unwrap();
    let report = flashscope_tests::report(&path);
    assert_eq!(report["block"]["stages"]["bios_queued"], 2);
}

/// A request whose times are not known, before a time at the end of a clock. Found by mutations of a trace with such times.
#[test]
fn a_step_without_a_time_does_not_move_the_clock() {
    let dir = TempDir::new("no-time");
    let path = dir.path().join("steps.blktrace.0");
    let mut bytes = Vec::new();
    let (disk, other, late) = (8_u32 << 20, 8_u32, i64::MAX as u64);
    for (time, size, action, device, pdu) in [
        (late, 4096_u32, 0x0042_0007_u32, other, 8_u16),
        (0x7fff, u32::MAX, COMPLETED, disk, 0),
        (late, 2, COMPLETED, disk, 0),
        (1, 4096, ISSUED, other, 0),
        (late, 4096, 0x0012_0001, disk, 0),
    ] {
        let mut one = Vec::new();
        record(&mut one, time, 8, action, 0);
        one[24..28].copy_from_slice(&size.to_le_bytes());
        one[36..40].copy_from_slice(&device.to_le_bytes());
        one[46..48].copy_from_slice(&pdu.to_le_bytes());
        bytes.extend(one);
    }
    std::fs::write(&path, bytes).unwrap();
    for command in ["report", "advise"] {
        let ran = output(flashscope().arg(command).arg(&path));
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// Numbers of a fixed seed (xorshift64*).
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
    }
}

/// A result, or one line and 1: whatever the numbers in a file are.
fn ends_well(arguments: &[&str], path: &Path, what: &str) {
    let ran = output(flashscope().arg(arguments[0]).arg(path).args(&arguments[1..]).stdin(Stdio::null()));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let refused = stderr.lines().count() == 1 && stderr.starts_with("flashscope: ");
    assert!(
        ran.status.success() || ran.status.code() == Some(1) && refused,
        "{what}: {arguments:?}: {}\n{stderr}",
        ran.status
    );
}

const EXTREMES: [u64; 12] =
    [0, 1, 7, 0xff, 0x1000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, (1 << 63) - 1, 1 << 63, u64::MAX - 1];

/// Neighbours of a hostile trace of two steps with the first and the last time that a clock has: other fields, offsets and steps.
#[test]
fn steps_with_any_fields_at_their_ends() {
    let dir = TempDir::new("any-fields");
    let path = dir.path().join("any.blktrace.0");
    let actions = [QUEUED, ISSUED, COMPLETED, 0x0012_0001, 0x0042_0007, 0x0082_0008, 0x0001_0005, 0x0001_000f];
    for seed in 1..=40 {
        let mut below = numbers(seed);
        let mut bytes = Vec::new();
        for number in 0..[2, 5, 40][seed as usize % 3] {
            let mut one = Vec::new();
            record(&mut one, [1, u64::MAX - 1, 1 << 20][number % 3], 8, actions[below(8) as usize], 0);
            for _ in 0..=below(3) {
                let fields = [(4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)];
                let (at, size) = fields[below(10) as usize];
                one[at..at + size].copy_from_slice(&EXTREMES[below(12) as usize].to_le_bytes()[..size]);
            }
            bytes.extend(one);
        }
        std::fs::write(&path, bytes).unwrap();
        let text = path.display().to_string();
        for command in [&["report", "--json"][..], &["advise"], &["diff", &text], &["export", "--to", "csv", "-o", "-"]]
        {
            ends_well(command, &path, &format!("seed {seed}"));
        }
    }
}

/// perf.data is refused by its first bytes, whatever its header says of sizes and offsets.
#[test]
fn no_header_of_perf_data_is_followed() {
    let dir = TempDir::new("perf-data");
    let path = dir.path().join("perf.data");
    for seed in 1..=12 {
        let mut below = numbers(seed);
        // `struct perf_file_header`: the size, the attributes' size, and the sections' offsets and sizes.
        let mut bytes = b"PERFILE2".to_vec();
        (0..12).for_each(|_| bytes.extend(EXTREMES[below(12) as usize].to_le_bytes()));
        bytes.truncate(8 + below(97) as usize);
        std::fs::write(&path, bytes).unwrap();
        for command in [&["report"][..], &["advise"], &["predict"], &["export", "--to", "json", "-o", "-"]] {
            ends_well(command, &path, &format!("seed {seed}"));
            assert_eq!(output(flashscope().arg("report").arg(&path)).status.code(), Some(1), "seed {seed}");
        }
    }
}

/// Facts of an ext4 on the disk that the events are of, or of a chip.
fn facts() -> serde_json::Value {
    serde_json::json!({
        "kernel": {"release": "6.1.0-50-armmp", "machine": "armv7l", "page_size": 4096},
        "mtd": [{"index": 0, "type": "nand", "size": 1_u64 << 40, "erasesize": 131_072, "writesize": 2048, "offset": 0, "chip": 0}],
        "mounts": [{"source": "/dev/a", "target": "/a", "type": "ext4", "device": "8:0", "block_bytes": 4096}],
        "recording": {"name": "bounds", "clock": "mono"},
    })
}

fn of_block_io(_: &str, name: &str) -> bool {
    !name.starts_with("nand_")
}

/// Writes events until the trace is as large as it may be, or there are no more.
fn fill(with: fn(&str, &str) -> bool, mut event: impl FnMut(&mut Writer, u64) -> bool) -> (Vec<u8>, u64) {
    let mut writer = Writer::new(&facts(), with);
    let mut events = 0;
    while writer.bytes.len() < most_bytes() - 8192 && event(&mut writer, events) {
        events += 1;
    }
    (writer.finish(), events)
}

/// Each takes a table, or a loop, to its worst.
fn hostile() -> Vec<(&'static str, (Vec<u8>, u64))> {
    let read = |w: &mut Writer, tid: u32, t: u64, inode: u64, size: u64, pos: u64, count: u64| {
        w.event("file_read", tid, t, &[DISK, inode, size, pos, count]);
    };
    let folio = |w: &mut Writer, tid: u32, t: u64, inode: u64, page: u64, order: u64| {
        w.event("mm_filemap_add_to_page_cache", tid, t, &[1, inode, page, DISK, order]);
    };
    vec![
        (
            "folios of 2^18 pages",
            fill(of_block_io, |w, n| {
                match n {
                    0 => read(w, 1, SECOND, 5, MEBIBYTE as u64, 0, 4096),
                    _ => folio(w, 1, SECOND + n, 5, n << 20, 18),
                }
                true
            }),
        ),
        (
            "reads of 2 GiB",
            fill(of_block_io, |w, n| {
                match n % 3 {
                    0 => read(w, 1, SECOND + n, 5, 1 << 45, n << 31, 2 << 30),
                    1 => folio(w, 1, SECOND + n, 5, n << 20, 9),
                    _ => w.event("sys_exit_read", 1, SECOND + n, &[3, 2 << 30]),
                }
                true
            }),
        ),
        (
            "two writes of 4 GiB",
            fill(of_block_io, |w, n| {
                match n {
                    0 | 1 => w.event("file_write", 1, SECOND + n, &[DISK, 5, n << 32, 4 << 30]),
                    2 => {
                        w.event("ext4_ext_map_blocks_exit", 1, SECOND + n, &[DISK, 5, 0, 0, u64::from(u32::MAX), 1, 1])
                    }
                    _ => w.event_rwbs("block_bio_queue", 7, SECOND + n, &[DISK, 0, u64::from(u32::MAX)], "W"),
                }
                n < 200
            }),
        ),
        (
            "bios of 4 GiB on no file, anywhere",
            fill(of_block_io, |w, n| {
                let (sector, rwbs) = (n * (1 << (n % 25)) + 1, ["R", "W"][n as usize % 2]);
                w.event_rwbs("block_bio_queue", 7, SECOND + n, &[DISK, sector, (4 << 30) / 512 - 8], rwbs);
                true
            }),
        ),
        (
            "every second page dirty, then all",
            fill(of_block_io, |w, n| {
                match n < 1000 {
                    true => w.event("file_write", (n % 4) as u32, SECOND + n, &[DISK, 5, n * 8192, 4096]),
                    false => w.event("file_write", (n % 5) as u32, SECOND + n, &[DISK, 5, 0, 1000 * 8192]),
                }
                true
            }),
        ),
        (
            "a file for each event",
            fill(of_block_io, |w, n| {
                match n % 2 {
                    0 => read(w, 1, SECOND + n, n, 4096, 0, 4096),
                    _ => folio(w, 1, SECOND + n, n - 1, 0, 0),
                }
                true
            }),
        ),
        (
            "a task for each bio, for years",
            fill(of_block_io, |w, n| {
                let (bio, step) = (n / 4, n % 4);
                let names = ["block_bio_queue", "block_getrq", "block_rq_issue", "block_rq_complete"];
                // Times of any order of magnitude, and three years later at least.
                let time = SECOND + n * (1 << 40) + (1 << (bio % 40)) * step;
                w.event(names[step as usize], (bio % 3000) as u32, time, &[DISK + bio % 100, bio * 8, 8]);
                true
            }),
        ),
        (
            "all tasks in a call, bios of many pages",
            fill(of_block_io, |w, n| {
                match n {
                    0..1000 => read(w, n as u32, SECOND + n, 5, 1 << 40, 0, 1 << 30),
                    _ => {
                        let (tid, sector) = ((n / 3 % 1000) as u32, n / 3 * 8192);
                        match n % 3 {
                            0 => folio(w, tid, SECOND + n, 5, n * 1024, 10),
                            1 => w.event("block_bio_queue", tid, SECOND + n, &[DISK, sector, 8192]),
                            _ => w.event("block_rq_complete", 0, SECOND + n, &[DISK, sector, 8192, 0]),
                        }
                    }
                }
                true
            }),
        ),
        (
            "a block for each erase",
            fill(
                |_, _| true,
                |w, n| {
                    w.event("nand_erase", 1, SECOND + n, &[n, 0]);
                    true
                },
            ),
        ),
        (
            "pages and files on flash",
            fill(
                |_, _| true,
                |w, n| {
                    match n % 4 {
                        0 => w.event("file_write", n as u32, SECOND + n, &[DISK, n, 0, 4 << 30]),
                        1 => w.event("nand_program", n as u32 - 1, SECOND + n, &[n * 64, 0]),
                        2 => read(w, n as u32, SECOND + n, n, 1 << 40, 0, 1 << 31),
                        _ => w.event("nand_read", n as u32 - 1, SECOND + n, &[n * 640, 0, 2048, 0]),
                    }
                    true
                },
            ),
        ),
    ]
}

/// Chains without an end, and neighbours of folios of any order.
fn hostile_chains() -> Vec<(&'static str, (Vec<u8>, u64))> {
    let block = |w: &mut Writer, name: &str, t: u64, fields: &[u64]| w.event(name, 1, SECOND + t, fields);
    vec![
        (
            "folios of any order in a file each, that come and go",
            fill(of_block_io, |w, n| {
                let (file, time) = (n / 4, SECOND + n);
                match n % 4 {
                    0 => w.event("file_read", (file % 90) as u32, time, &[DISK, file, 1 << 50, file << 31, 1 << 31]),
                    1 => w.event("mm_filemap_add_to_page_cache", (file % 90) as u32, time, &[1, file, n, DISK, n % 20]),
                    2 => w.event("mm_filemap_delete_from_page_cache", 7, time, &[1, file, 0, DISK, 18]),
                    _ => w.event("file_write", 7, time, &[DISK, file, 0, 1 << 31]),
                }
                true
            }),
        ),
        (
            "a device above each device",
            fill(of_block_io, |w, n| {
                block(w, "block_bio_remap", n, &[DISK + n + 1, n * 8, 8, DISK + n, n * 8]);
                true
            }),
        ),
        (
            "two devices above one another",
            fill(of_block_io, |w, n| {
                match n {
                    0 => block(w, "block_bio_queue", n, &[DISK, 0, 8]),
                    _ => block(w, "block_bio_remap", n, &[DISK + n % 2, 0, 8, DISK + (n + 1) % 2, 0]),
                }
                true
            }),
        ),
        (
            "a bio that is split without an end",
            fill(of_block_io, |w, n| {
                match n {
                    0 => block(w, "block_bio_queue", n, &[DISK, 0, u64::from(u32::MAX)]),
                    _ => block(w, "block_split", n, &[DISK, 0, n]),
                }
                true
            }),
        ),
        (
            "a request that grows without an end",
            fill(of_block_io, |w, n| {
                let name =
                    if n == 1 { "block_getrq" } else { ["block_bio_queue", "block_bio_backmerge"][n as usize % 2] };
                block(w, name, n, &[DISK, n / 2 * 8, 8]);
                true
            }),
        ),
        (
            "extents of a block each, and bios over all of them",
            fill(of_block_io, |w, n| {
                match n % 2 {
                    0 => block(w, "ext4_ext_map_blocks_exit", n, &[DISK, n % 4, n, n * 7919 % (1 << 24), 1, 1, 1]),
                    _ => w.event_rwbs("block_bio_queue", 7, SECOND + n, &[DISK, 0, u64::from(u32::MAX)], "W"),
                }
                true
            }),
        ),
    ]
}

/// Lines from a function of their number, as many as there is room for.
fn lines(head: &str, line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = head.to_owned();
    for n in 0.. {
        let next = line(n);
        if text.len() + next.len() > most_bytes() - 64 {
            break;
        }
        text += &next;
    }
    text.into_bytes()
}

/// The same of what other tools write: names, nesting, lists, processors and times without a limit.
fn other_formats() -> Vec<(&'static str, Vec<u8>)> {
    const HEAD: &str = "# tracer: nop\n#\n";
    let room = most_bytes() - 256;
    let event = |n: usize, what: &str| {
        format!(" t-{} [000] .... {}.{:06}: {what}\n", n % 9, 100 + n / 1_000_000, n % 1_000_000)
    };
    let bio = "block_bio_queue: 8,0 WS 8 + 8 [t]";
    let many = |count: usize, of: fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(" ");
    let mut remaps = Vec::new();
    let mut messages = Vec::new();
    for n in 0..most_bytes() / 64 {
        record(&mut remaps, n as u64, n as u64 * 8, 0x0010_000f, 0);
        let at = remaps.len() - 2;
        remaps[at..].copy_from_slice(&16_u16.to_le_bytes());
        [8 << 20 | n as u32, 8 << 20 | (n as u32 + 1)].iter().for_each(|device| remaps.extend(device.to_be_bytes()));
        remaps.extend((n as u64 * 8).to_be_bytes());
    }
    while messages.len() < room - 65_535 {
        record(&mut messages, 1, 0, 0x0400_0002, 0);
        let at = messages.len() - 2;
        messages[at..].copy_from_slice(&u16::MAX.to_le_bytes());
        messages.resize(messages.len() + 65_535, b'm');
    }
    vec![
        ("a name of a mebibyte", format!("{HEAD} {}-1 [000] .... 1.000001: {bio}\n", "n".repeat(room)).into()),
        ("lines that end nowhere", format!("{HEAD}{}{}", event(1, bio), "\r".repeat(room)).into()),
        ("a hundred thousand fields", (HEAD.to_owned() + &event(1, &many(room / 16, |n| format!("a{n}={n}")))).into()),
        ("a kind of event a line", lines(HEAD, |n| event(n, &format!("ev{n}: a{n}={n}")))),
        ("other fields each line", lines(HEAD, |n| event(n, &format!("ev: a{n}={n}")))),
        ("a device a line", lines(HEAD, |n| event(n, &format!("block_bio_queue: {},{n} WS {n} + 8 [t]", n % 4096)))),
        ("a processor a line", lines(HEAD, |n| format!(" t-1 [{}] .... 1.{n:06}: {bio}\n", n * 99_991))),
        (
            "losses past 64 bits",
            lines(&(HEAD.to_owned() + &event(1, bio)), |n| format!("CPU:{n} [LOST {} EVENTS]\n", u64::MAX)),
        ),
        ("calls in calls", lines("# tracer: function_graph\n#\n", |n| format!(" 0)   |  f{n}() {{\n"))),
        (
            "times and sectors at their ends",
            lines("", |n| {
                let (time, action) =
                    (["18446744073.709551615", "0.000000000", "9223372036.854775807"][n % 3], ["Q", "D", "C"][n % 3]);
                format!("  8,0    0 {n:9} {time} {n:5}  {action}  WS {} + {} [t{n}]\n", u64::MAX - n as u64, u32::MAX)
            }),
        ),
        (
            "a stack of a mebibyte",
            lines("t 1 [000] 100.000001: block:block_bio_queue: 8,0 WS 8 + 8 [t]\n", |n| {
                format!("\t{n:x} f{n}+0x1 (lib{n})\n")
            }),
        ),
        (
            "a list of empty traces",
            lines("<!DOCTYPE html>\n", |_| {
                format!("<script class=\"trace-data\" type=\"application/text\">\n{HEAD}</script>\n")
            }),
        ),
        ("JSON in JSON", "{\"a\":".repeat(room / 5).into()),
        ("a result of empty names", format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(room / 7)).into()),
        ("a remap of each device", remaps),
        ("messages of 64 KiB", messages),
    ]
}

/// Runs a command that the kernel gives so much private memory at most. Returns its peak and its processor time, as far as they were seen.
fn limited(arguments: &[&str], path: &Path, memory: u64) -> (u64, Duration, std::process::ExitStatus, String) {
    let command = flashscope();
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -d \"$1\" && shift && exec \"$@\"", "sh", &(memory >> 10).to_string()]);
    limited
        .arg(optimised().unwrap_or_else(|| command.get_program().into()))
        .arg(arguments[0])
        .arg(path)
        .args(&arguments[1..]);
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let begin = Instant::now();
    let mut child = limited.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a shell");
    let (mut peak, mut took) = (0, Duration::ZERO);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        let said = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(peak);
        // Processor time, in hundredths of seconds, in user and in kernel mode: others use the machine too.
        let said = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let behind_name = said.rsplit_once(')').map_or("", |(_, behind)| behind);
        let ticks =
            behind_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>();
        took = took.max(Duration::from_millis(10 * ticks));
        if took > 12 * TIME || begin.elapsed() > 60 * TIME {
            child.kill().expect("a child");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut stderr).expect("text");
    (peak << 10, took, status, stderr)
}

/// What packs so well that a mebibyte of it is the most that is unpacked: events that repeat after some megabytes, dense in their ring
/// buffers. An unoptimised build gets a 64th of it.
fn packed() -> Vec<(&'static str, (Vec<u8>, u64))> {
    let most = if is_unoptimised() { MEBIBYTE } else { 64 * MEBIBYTE - 8192 };
    let fill = |with: fn(&str, &str) -> bool, event: &mut dyn FnMut(&mut Writer, u64)| {
        let mut writer = Writer::new(&facts(), with);
        let mut events = 0;
        while writer.bytes.len() < most {
            event(&mut writer, events);
            events += 1;
        }
        (writer.finish(), events)
    };
    vec![
        (
            "packed: a device for each bio",
            fill(of_block_io, &mut |w, n| {
                let (bio, time) = (n / 3 % 60_000, SECOND + n * 256);
                let names = ["block_bio_queue", "block_rq_issue", "block_rq_complete"];
                w.event(names[n as usize % 3], (bio % 1000) as u32, time, &[DISK + bio, bio * 8, 8]);
            }),
        ),
        (
            "packed: all bios at one sector, in flight",
            fill(of_block_io, &mut |w, n| w.event("block_bio_queue", 1, SECOND + n * 256, &[DISK, 8, 8])),
        ),
        (
            "packed: programs of all pages",
            fill(|_, _| true, &mut |w, n| {
                w.event("nand_program", (n % 1000) as u32, SECOND + n * 256, &[n % 200_000 * 3, 0]);
            }),
        ),
        (
            "packed: reads of files",
            fill(of_block_io, &mut |w, n| {
                let (call, time) = (n / 2 % 80_000, SECOND + n * 256);
                match n % 2 {
                    0 => w.event("file_read", (call % 1000) as u32, time, &[DISK, call, 1 << 30, call << 12, 4096]),
                    _ => w.event("mm_filemap_add_to_page_cache", (call % 1000) as u32, time, &[1, call, call, DISK, 0]),
                }
            }),
        ),
    ]
}

/// The same within 1 MiB that it is for what is not packed: unpacked size is bounded so that it is.
#[test]
fn packed_traces_stay_within_their_memory_and_time() {
    let dir = TempDir::new("bounds-packed");
    let most = if is_unoptimised() { 6 * TIME } else { TIME };
    for (name, (bytes, events)) in packed() {
        let plain = dir.path().join("hostile.stream");
        std::fs::write(&plain, bytes).unwrap();
        stdout(Command::new("xz").args(["-9", "-f", "-k"]).arg(&plain));
        let path = dir.path().join("hostile.stream.xz");
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size <= MEBIBYTE as u64, "{name}: {size} bytes");
        let text = path.display().to_string();
        for command in [&["report"][..], &["advise"], &["predict"], &["diff", &text]] {
            let (peak, took, status, stderr) = limited(command, &path, MEMORY + (events << 10));
            println!("{name}, {events} events: {}: {} MiB, {:.1} s", command[0], peak >> 20, took.as_secs_f64());
            let refused = status.code() == Some(1) && stderr.lines().count() == 1 && stderr.starts_with("flashscope: ");
            assert!(status.success() || refused, "{name}, {command:?}: {status}\n{stderr}");
            assert!(took < most, "{name}, {command:?}: {took:?}");
        }
    }
}

/// Whole commands, on the worst that a mebibyte can hold: the memory is what the kernel grants them.
#[test]
fn whole_commands_stay_within_their_memory_and_time() {
    let dir = TempDir::new("bounds");
    let page = dir.path().join("page").display().to_string();
    let most = if is_unoptimised() { 6 * TIME } else { TIME };
    for (name, (bytes, events)) in hostile().into_iter().chain(hostile_chains()) {
        assert!(bytes.len() <= MEBIBYTE && events > 100, "{name}: {events} events, {} bytes", bytes.len());
        let path = dir.path().join("hostile.stream");
        std::fs::write(&path, bytes).unwrap();
        let text = path.display().to_string();
        let memory = MEMORY + (events << 10);
        for command in [
            &["report"][..],
            &["advise"],
            &["predict"],
            &["export", "--to", "csv", "-o", "-"],
            &["export", "--to", "json", "-o", "-"],
            &["export", "--to", "text", "-o", "-"],
            &["export", "--to", "perfetto", "-o", "-"],
            &["report", "--html", &page, "--top", "1000000"],
            &["diff", &text, "--html", &page],
            &["report", "--by", "app"],
            &["report", "--fail-if", "p99(d2c, app=nosuch) > 1ms"],
        ] {
            let (peak, took, status, stderr) = limited(command, &path, memory);
            println!("{name}, {events} events: {}: {} MiB, {:.1} s", command.join(" "), peak >> 20, took.as_secs_f64());
            // Some hold nothing that can be advised on: one line says so.
            let refused = status.code() == Some(1) && stderr.lines().count() == 1 && stderr.starts_with("flashscope: ");
            assert!(status.success() || refused, "{name}, {command:?}: {status}\n{stderr}");
            assert!(took < most, "{name}, {command:?}: {took:?}");
        }
    }
}

/// Options that read a trace another way, or write it in another form, on arbitrary events: the whole command, with its arguments. OTHER is a
/// second trace, OUT a file.
const OPTIONS: [&str; 26] = [
    "report TRACE --json --from 0.000001 --to 1000",
    "report TRACE --from 1e9",
    "report TRACE --process app --json",
    "report TRACE --by file --top 2",
    "report TRACE --by app --json",
    "report TRACE --by process --top 1",
    "report TRACE --by thread",
    "report TRACE --by layer --json",
    "report TRACE --call 1 --json",
    "report TRACE --perfetto OUT",
    "report TRACE --html OUT --top 1 --endurance 1",
    "report TRACE --anonymize --json",
    "report TRACE OTHER --offset OTHER=-9223372036854775807 --json",
    "report TRACE OTHER --offset OTHER=9223372036854775807 --by app",
    "report TRACE --fail-if errors>0 --fail-if p99(d2c)>1us --junit OUT",
    "diff TRACE OTHER --html OUT --fail-if regress>1% --junit OUT2",
    "predict TRACE --readahead 0,4,1024 --json",
    "advise TRACE --json",
    "export TRACE --to parquet -o OUT",
    "export TRACE --rows bios --to csv --csv-raw -o OUT",
    "export TRACE --rows requests --to json -o OUT",
    "export TRACE --rows requests --to parquet -o OUT",
    "export TRACE OTHER --offset OTHER=-5 --to trace.dat -o OUT",
    "export TRACE OTHER --offset OTHER=9223372036854775807 --to json -o OUT",
    "export TRACE --to trace.dat --anonymize -o OUT",
    "export TRACE --to flashmon --chip 1 -o OUT",
];

#[test]
fn every_option_takes_any_events() {
    let dir = TempDir::new("bounds-options");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let bytes = |seed: u64| {
        let mut below = numbers(seed);
        (0..4096).map(|_| below(256) as u8).collect::<Vec<_>>()
    };
    let (mut results, mut refusals) = (0, 0);
    for seed in 1..=4 {
        std::fs::write(at("TRACE"), structured::stream(&bytes(seed))).unwrap();
        std::fs::write(at("OTHER"), structured::stream(&bytes(seed + 100))).unwrap();
        for line in OPTIONS {
            let mut command = flashscope();
            let ran = output(command.args(line.split(' ')).current_dir(dir.path()).stdin(Stdio::null()));
            let stderr = String::from_utf8_lossy(&ran.stderr);
            // A line for each condition that cannot be checked.
            let is_told = !stderr.is_empty() && stderr.lines().all(|line| line.starts_with("flashscope: "));
            // 3: a condition holds.
            let is_result = matches!(ran.status.code(), Some(0 | 3));
            let is_refusal = matches!(ran.status.code(), Some(1 | 2)) && is_told;
            assert!(is_result || is_refusal, "seed {seed}: {line}: {}\n{stderr}", ran.status);
            (results, refusals) = (results + u32::from(is_result), refusals + u32::from(is_refusal));
        }
    }
    println!("{results} results, {refusals} refusals");
    assert!(results > refusals, "{results} results, {refusals} refusals");
}

/// The same on what other tools write; no line of these is an item that a KiB is granted for.
#[test]
fn other_formats_stay_within_their_memory_and_time() {
    let dir = TempDir::new("bounds-formats");
    let most = if is_unoptimised() { 6 * TIME } else { TIME };
    let path = dir.path().join("hostile");
    let text = path.display().to_string();
    for (name, bytes) in other_formats() {
        assert!(bytes.len() <= MEBIBYTE && bytes.len() > most_bytes() / 4, "{name}: {} bytes", bytes.len());
        std::fs::write(&path, bytes).unwrap();
        for command in [&["report"][..], &["advise"], &["diff", &text], &["export", "--to", "json", "-o", "-"]] {
            let (peak, took, status, stderr) = limited(command, &path, MEMORY);
            println!("{name}: {}: {} MiB, {:.1} s", command.join(" "), peak >> 20, took.as_secs_f64());
            let refused = status.code() == Some(1) && stderr.lines().count() == 1 && stderr.starts_with("flashscope: ");
            assert!(status.success() || refused, "{name}, {command:?}: {status}\n{stderr}");
            assert!(took < most, "{name}, {command:?}: {took:?}");
        }
    }
}
