//! blktrace's records: built by hand in both versions and byte orders, damaged in every way, and recorded on boards.

use flashscope_trace::{
    BlockAction, BlockDetail, Device, Endian, Event, EventKind, Loss, TaskId, Trace, TraceKind, Value,
};
use std::path::{Path, PathBuf};

/// A directory of this test's own.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("flashscope-blktrace-{}-{name}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A record as `include/uapi/linux/blktrace_api.h` (Linux 7.2) describes it.
#[derive(Clone)]
struct Built {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    pid: u32,
    device: u32,
    cpu: u32,
    error: u16,
    pdu: Vec<u8>,
}

const QUEUE: u64 = 1 << 4;
const SDA: u32 = 8 << 20;

impl Built {
    fn new(sequence: u32, time: u64, action: u64) -> Built {
        Built { sequence, time, sector: 2048, bytes: 4096, action, pid: 7, device: SDA, cpu: 0, error: 0, pdu: vec![] }
    }

    fn bytes(&self, endian: Endian, version: u32) -> Vec<u8> {
        let mut b = Vec::new();
        let n32 = |b: &mut Vec<u8>, v: u32| match endian {
            Endian::Little => b.extend_from_slice(&v.to_le_bytes()),
            Endian::Big => b.extend_from_slice(&v.to_be_bytes()),
        };
        let n64 = |b: &mut Vec<u8>, v: u64| match endian {
            Endian::Little => b.extend_from_slice(&v.to_le_bytes()),
            Endian::Big => b.extend_from_slice(&v.to_be_bytes()),
        };
        let n16 = |b: &mut Vec<u8>, v: u16| match endian {
            Endian::Little => b.extend_from_slice(&v.to_le_bytes()),
            Endian::Big => b.extend_from_slice(&v.to_be_bytes()),
        };
        n32(&mut b, 0x6561_7400 | version);
        n32(&mut b, self.sequence);
        n64(&mut b, self.time);
        n64(&mut b, self.sector);
        n32(&mut b, self.bytes);
        if version == 7 {
            n32(&mut b, self.action as u32);
            n32(&mut b, self.pid);
        } else {
            n32(&mut b, self.pid);
            n64(&mut b, self.action);
        }
        n32(&mut b, self.device);
        n32(&mut b, self.cpu);
        n16(&mut b, self.error);
        n16(&mut b, self.pdu.len() as u16);
        if version == 8 {
            b.extend_from_slice(&[0; 12]);
        }
        b.extend_from_slice(&self.pdu);
        b
    }
}

/// One of everything that has a form of its own.
fn everything(endian: Endian, version: u32) -> Vec<u8> {
    let number = |v: u64| match endian {
        Endian::Little => v.to_le_bytes().to_vec(),
        Endian::Big => v.to_be_bytes().to_vec(),
    };
    let word = |v: u32| match endian {
        Endian::Little => v.to_le_bytes().to_vec(),
        Endian::Big => v.to_be_bytes().to_vec(),
    };
    let notify = 1u64 << 26;
    let write_sync = 0xa << 16;
    let remap = [(253u32 << 20 | 3).to_be_bytes().to_vec(), SDA.to_be_bytes().to_vec(), 77u64.to_be_bytes().to_vec()];
    let records = [
        Built { pdu: b"cat\0\0\0\0\0".to_vec(), sequence: 0, ..Built::new(0, 10, notify) },
        Built { pdu: [word(1_700_000_000), word(5)].concat(), pid: 0, ..Built::new(0, 11, notify | 1) },
        Built { pdu: b"hello".to_vec(), ..Built::new(0, 12, notify | 2) },
        Built { pdu: remap.concat(), ..Built::new(1, 20, 15 | (QUEUE << 16) | write_sync) },
        Built::new(2, 30, 1 | (QUEUE << 16) | write_sync),
        Built { pdu: number(4242), ..Built::new(3, 31, 0x100 | 4 | (QUEUE << 16) | write_sync) },
        Built { pdu: 2052u64.to_be_bytes().to_vec(), ..Built::new(4, 32, 13 | write_sync) },
        Built { pdu: 3u64.to_be_bytes().to_vec(), bytes: 0, sector: 0, ..Built::new(5, 33, 10 | (QUEUE << 16)) },
        Built { error: -5i16 as u16, ..Built::new(8, 40, 8 | (1 << 23) | write_sync) },
    ];
    records.iter().flat_map(|r| r.bytes(endian, version)).collect()
}

fn events(trace: &Trace) -> Vec<Event> {
    let mut all = Vec::new();
    trace.for_each(&mut |e| all.push(e.clone())).unwrap();
    all
}

fn actions(trace: &Trace) -> Vec<BlockAction> {
    events(trace)
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::Block(b) => Some(b.action),
            _ => None,
        })
        .collect()
}

#[test]
fn every_kind_of_record_in_both_versions_and_byte_orders() {
    let dir = Dir::new("kinds");
    for endian in [Endian::Little, Endian::Big] {
        for version in [7, 8] {
            let path = dir.write("a.blktrace.0", &everything(endian, version));
            let trace = Trace::open(&path).unwrap();
            assert_eq!((trace.kind(), trace.clock(), trace.cpus()), (TraceKind::Blktrace, "mono", 1));
            assert_eq!(trace.facts_json()["blktrace"]["version"], version);
            assert_eq!(trace.facts_json()["blktrace"]["wall_clock"]["realtime_ns"], 1_700_000_000_000_000_005u64);
            let all = events(&trace);
            let blocks: Vec<_> = all
                .iter()
                .filter_map(|e| match e.kind {
                    EventKind::Block(b) => Some(b),
                    _ => None,
                })
                .collect();
            use BlockAction::*;
            assert_eq!(actions(&trace), [Remap, Queue, GetRq, Split, Unplug, Complete]);
            assert_eq!(all[0].kind, EventKind::Mark { name: "hello".into() });
            assert_eq!(blocks[0].detail, BlockDetail::Remap { device: Device::new(253, 3), sector: 77 });
            assert_eq!(blocks[0].device, Device::new(8, 0));
            assert_eq!((blocks[1].sector, blocks[1].bytes, blocks[1].end()), (2048, 4096, 2056));
            assert_eq!(blocks[1].flags.to_string(), "WS");
            assert_eq!((blocks[1].cgroup, blocks[2].cgroup), (0, 4242));
            assert_eq!(blocks[3].detail, BlockDetail::Split { sector: 2052 });
            assert_eq!(blocks[4].detail, BlockDetail::Unplug { requests: 3 });
            assert_eq!(blocks[5].error, -5);
            assert_eq!(trace.comm(TaskId(7), all[0].time), Some("cat"));
            // Two numbers are missing before the last record.
            for (loss, count) in trace.losses().iter() {
                assert_eq!(count, if loss == Loss::RecordsMissing { 2 } else { 0 }, "{}", loss.name());
            }
            // Records are lossless: notes and PDUs too.
            let mut back = Vec::new();
            trace
                .for_each_record(&mut |r| {
                    back.extend_from_slice(&r.data[24..]);
                    assert_eq!(r.get("time"), Some(Value::Unsigned(r.time.0)));
                    assert_eq!(r.get("pid"), Some(Value::Unsigned(r.tid().0.into())));
                    if r.get("action") == Some(Value::Unsigned(0x0400_0002)) {
                        assert_eq!(format!("{:?}", r.get("pdu")).matches("104").count(), 1, "{:?}", r.get("pdu"));
                    }
                })
                .unwrap();
            assert_eq!(back, everything(endian, version));
        }
    }
}

/// One version is read in a loop of its own: what follows it is not lost, and the other way round.
#[test]
fn versions_may_change_within_a_file() {
    let dir = Dir::new("versions");
    for endian in [Endian::Little, Endian::Big] {
        let both: Vec<u8> = [7, 8, 7, 8, 8, 7].iter().flat_map(|&version| everything(endian, version)).collect();
        let trace = Trace::open(&dir.write("a.blktrace.0", &both)).unwrap();
        let mut back = Vec::new();
        trace.for_each_record(&mut |r| back.extend_from_slice(&r.data[24..])).unwrap();
        assert!(back == both, "{endian:?}: {} of {} bytes", back.len(), both.len());
        use BlockAction::*;
        assert_eq!(actions(&trace), [Remap, Queue, GetRq, Split, Unplug, Complete].repeat(6));
        // Each begins anew, before the last one's end and with small numbers.
        let losses = trace.losses();
        assert_eq!((losses.get(Loss::TimesBackwards), losses.get(Loss::RecordsMissing)), (5, 12));
        assert_eq!((losses.get(Loss::RecordsMalformed), losses.get(Loss::BytesSkipped)), (0, 0));
    }
}

/// Four CPUs whose records interleave; each has its own numbers.
/// `blkparse -d` of a partition's trace: its remaps have the disk, and the partition's numbers. Of a disk's trace they have the
/// disk's, beside a partition or another device that is traced, too.
#[test]
fn remaps_are_numbered_with_the_trace_that_they_are_in() {
    let dir = Dir::new("partition");
    let (disk, part) = (259u32 << 20 | 6, 259u32 << 20 | 9);
    let of = |(remaps, rest): (u32, u32), cpu: u32, steps: &[(u32, char)]| -> Vec<Built> {
        let pdu = [part.to_be_bytes().to_vec(), disk.to_be_bytes().to_vec(), 77u64.to_be_bytes().to_vec()].concat();
        let step = |&(sequence, letter): &(u32, char)| {
            let action = match letter {
                'A' => 15,
                'Q' => 1,
                _ => 8,
            };
            let (device, pdu) = if letter == 'A' { (remaps, pdu.clone()) } else { (rest, vec![]) };
            let time = 10 * u64::from(sequence) + u64::from(cpu);
            Built { device, cpu, pdu, ..Built::new(sequence, time, action | (QUEUE << 16)) }
        };
        steps.iter().map(step).collect()
    };
    let whole = [(1, 'A'), (2, 'Q'), (3, 'C'), (4, 'A'), (5, 'Q'), (6, 'C'), (7, 'A'), (8, 'Q')];
    let lossy = [(1, 'A'), (2, 'Q'), (3, 'C'), (6, 'A'), (7, 'Q'), (10, 'C'), (11, 'A'), (12, 'Q')];
    for (name, pair, steps, missing) in [
        ("partition", (disk, part), &whole, 0),
        ("partition, some lost", (disk, part), &lossy, 4),
        ("disk", (disk, disk), &whole, 0),
        ("disk, some lost", (disk, disk), &lossy, 4),
    ] {
        let mut records: Vec<Built> = (0..2).flat_map(|cpu| of(pair, cpu, steps)).collect();
        records.sort_by_key(|record| record.time);
        for endian in [Endian::Little, Endian::Big] {
            let bytes: Vec<u8> = records.iter().flat_map(|r| r.bytes(endian, 7)).collect();
            let trace = Trace::open(&dir.write("dump", &bytes)).unwrap();
            assert_eq!(events(&trace).len(), 16, "{name}");
            assert_eq!(trace.losses().get(Loss::RecordsMissing), 2 * missing, "{name}");
        }
        let text: String = records
            .iter()
            .map(|r| {
                let (letter, behind) = match r.action & 0xff {
                    15 => ("A", "<- (259,9) 77"),
                    1 => ("Q", "[dd]"),
                    _ => ("C", "[0]"),
                };
                let minor = r.device & 0xfffff;
                let (cpu, number, time) = (r.cpu, r.sequence, r.time);
                format!("259,{minor}    {cpu}        {number}     0.{time:09}   100  {letter}  WS 2048 + 8 {behind}\n")
            })
            .collect();
        let trace = Trace::open(&dir.write("text", text.as_bytes())).unwrap();
        assert_eq!(events(&trace).len(), 16, "{name}: {text}");
        assert_eq!(trace.losses().get(Loss::RecordsMissing), 2 * missing, "{name}: {text}");
    }
}

fn four_cpus() -> Vec<Vec<Built>> {
    (0..4u32)
        .map(|cpu| {
            (0..500u32)
                .map(|i| Built {
                    cpu,
                    sector: u64::from(i) * 8,
                    ..Built::new(i + 1, u64::from(i) * 400 + u64::from(cpu * 37 + i % 7), 1 | (QUEUE << 16) | 1 << 16)
                })
                .collect()
        })
        .collect()
}

#[test]
fn any_file_the_name_a_directory_and_streams_give_the_same_events() {
    let dir = Dir::new("names");
    let cpus = four_cpus();
    let joined = |records: &[Built]| records.iter().flat_map(|r| r.bytes(Endian::Little, 7)).collect::<Vec<u8>>();
    for (n, records) in cpus.iter().enumerate() {
        dir.write(&format!("sda.blktrace.{n}"), &joined(records));
    }
    // A CPU that did nothing.
    dir.write("sda.blktrace.4", b"");
    let want = events(&Trace::open(&dir.0.join("sda")).unwrap());
    assert_eq!(want.len(), 2000);
    assert!(want.is_sorted_by_key(|e| (e.time, e.cpu)));
    assert_eq!(events(&Trace::open(&dir.0.join("sda.blktrace.2")).unwrap()), want);
    assert_eq!(events(&Trace::open(&dir.0).unwrap()), want);

    // blkparse -d: one stream in order of time.
    let mut all: Vec<Built> = cpus.iter().flatten().cloned().collect();
    all.sort_by_key(|r| (r.time, r.cpu));
    let sorted = joined(&all);
    let path = dir.write("merged", &sorted);
    let trace = Trace::open(&path).unwrap();
    assert_eq!((events(&trace), trace.cpus()), (want.clone(), 4));
    assert!(trace.losses().is_empty());
    assert_eq!(trace.clock(), "blkparse");

    // blktrace -o -: pieces of one CPU after another's.
    let mut pieces = Vec::new();
    for chunk in 0..5 {
        for records in &cpus {
            pieces.extend(joined(&records[chunk * 100..chunk * 100 + 100]));
        }
    }
    let path = dir.write("pieces", &pieces);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(events(&trace), want);
    assert!(trace.losses().is_empty(), "{:?}", trace.losses());

    // The same through a pipe, which is read once only.
    let fifo = dir.0.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (to, bytes) = (fifo.clone(), pieces);
    let writer = std::thread::spawn(move || std::fs::write(to, bytes).unwrap());
    let trace = Trace::open(&fifo).unwrap();
    writer.join().unwrap();
    assert_eq!((events(&trace), events(&trace)), (want.clone(), want));
}

#[test]
fn what_is_not_there_or_none_is_an_error_in_one_line() {
    let dir = Dir::new("errors");
    let refused = |path: &Path, words: &str| {
        let text = Trace::open(path).unwrap_err().to_string();
        assert!(text.contains(words) && !text.contains('\n'), "{text}");
    };
    refused(&dir.0.join("sda"), "cannot open");
    refused(&dir.0, "a directory is read where it holds blktrace's files");
    refused(&dir.write("x.blktrace.0", b"something else"), "expected a blktrace record");
    let ctf = Dir::new("ctf");
    ctf.write("metadata", b"/* CTF 1.8 */");
    refused(&ctf.0, "looks like a CTF trace of LTTng");
    let mixed = Dir::new("mixed");
    mixed.write("m.blktrace.0", &Built::new(1, 1, 1).bytes(Endian::Little, 7));
    mixed.write("m.blktrace.1", &Built::new(1, 1, 1).bytes(Endian::Big, 7));
    let text = Trace::open(&mixed.0).unwrap_err().to_string();
    assert!(text.contains("m.blktrace.1") && text.contains("byte order"), "{text}");
}

#[test]
fn cut_anywhere_keeps_what_came_before() {
    for (endian, version) in [(Endian::Little, 7), (Endian::Big, 8)] {
        let whole = everything(endian, version);
        let dir = Dir::new("cut");
        let all = actions(&Trace::open(&dir.write("c.blktrace.0", &whole)).unwrap());
        for cut in 4..whole.len() {
            for name in ["c.blktrace.0", "c"] {
                let path = dir.write(name, &whole[..cut]);
                let trace = Trace::open(&path).unwrap();
                let found = actions(&trace);
                assert_eq!(found, all[..found.len()], "{cut}");
                let mut whole_records = 0;
                trace.for_each_record(&mut |r| whole_records += r.data.len() - 24).unwrap();
                let losses = trace.losses();
                assert_eq!(losses.get(Loss::DataCut), u64::from(whole_records < cut), "{cut}: {losses:?}");
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn damage_costs_what_is_damaged_and_no_more() {
    let dir = Dir::new("damage");
    let records = &four_cpus()[0][..20];
    let joined: Vec<u8> = records.iter().flat_map(|r| r.bytes(Endian::Little, 7)).collect();
    let open = |bytes: &[u8]| {
        let trace = Trace::open(&dir.write("d.blktrace.0", bytes)).unwrap();
        let found = events(&trace).len();
        (found, trace.losses())
    };
    // A PDU's length that lies swallows nothing of what follows.
    for lie in [1u16, 47, 48, 500, u16::MAX] {
        let mut bytes = joined.clone();
        bytes[48 * 3 + 46..48 * 3 + 48].copy_from_slice(&lie.to_le_bytes());
        let (found, losses) = open(&bytes);
        // 48 bytes are just the record behind it, which is taken for its PDU; 65535 do not fit into the file: there is no
        // such record. Either way one is missing, by its number.
        let missing = u64::from(lie == 48 || lie == u16::MAX);
        assert_eq!(found as u64, 20 - missing, "{lie}: {losses:?}");
        assert_eq!(losses.get(Loss::RecordsMissing), missing, "{lie}: {losses:?}");
        assert_eq!(losses.get(Loss::RecordsMalformed), u64::from(lie != 48), "{lie}: {losses:?}");
    }
    // Garbage between records.
    let mut bytes = joined.clone();
    bytes.splice(96..96, [0xaa; 1000]);
    let (found, losses) = open(&bytes);
    assert_eq!((found, losses.get(Loss::BytesSkipped)), (20, 1000));
    // A lost magic costs its record.
    let mut bytes = joined.clone();
    bytes[96] ^= 1;
    let (found, losses) = open(&bytes);
    assert_eq!(found, 19);
    assert_eq!((losses.get(Loss::BytesSkipped), losses.get(Loss::RecordsMissing)), (48, 1));
    // Times that run backwards stay in their order.
    let mut bytes = joined.clone();
    bytes[96 + 8..96 + 16].copy_from_slice(&0u64.to_le_bytes());
    let (found, losses) = open(&bytes);
    assert_eq!((found, losses.get(Loss::TimesBackwards)), (20, 1));
    // An unknown action.
    let mut bytes = joined;
    bytes[96 + 28] = 99;
    let (found, losses) = open(&bytes);
    assert_eq!((found, losses.get(Loss::RecordsOfUnknownType)), (19, 1));
}

#[test]
fn any_bit_may_be_wrong() {
    let dir = Dir::new("bits");
    for (endian, version) in [(Endian::Little, 7), (Endian::Big, 8)] {
        let whole = everything(endian, version);
        for at in 0..whole.len() {
            for bit in [0, 3, 7] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                for name in ["b.blktrace.0", "b"] {
                    let path = dir.write(name, &bytes);
                    if let Ok(trace) = Trace::open(&path) {
                        let n = events(&trace).len();
                        assert!(n <= 9);
                        trace.for_each_record(&mut |_| ()).unwrap();
                        trace.comm(TaskId(7), flashscope_trace::TimeNs(50));
                    }
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
    }
}

#[test]
fn headers_that_all_lie_are_read_in_linear_time() {
    // Each record says that 65535 bytes follow it; the next one lies right behind it.
    let one = Built { pdu: vec![], ..Built::new(1, 1, 1) }.bytes(Endian::Little, 7);
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..40_000 {
        bytes.extend_from_slice(&one[..46]);
        bytes.extend_from_slice(&[0xff, 0xff]);
    }
    let dir = Dir::new("lies");
    let begin = std::time::Instant::now();
    let trace = Trace::open(&dir.write("l.blktrace.0", &bytes)).unwrap();
    events(&trace);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    assert!(trace.losses().get(Loss::RecordsMalformed) + trace.losses().get(Loss::RecordsMissing) > 0);
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blktrace").join(name)
}

const RECORDED: [&str; 14] = [
    "armv7-6.1/cgroup", "x86_64-6.1/cgroup", "armv7-5.10/main", "armv7-6.1/main", "armv7-6.1/dm-0", "armv7-6.1/nullb0",
    "armv7-6.12/main", "armv7-newest/main", "armv7-newest/dm-0", "armv7-newest/nullb0", "x86_64-5.10/main",
    "x86_64-6.1/main", "x86_64-6.12/main", "x86_64-newest/main",
];

/// Major, minor, CPU, number, time, pid, action, RWBS, sector, bytes, error.
type Row = (u32, u32, u32, u64, u64, u32, String, String, u64, u64, i64);

/// What Debian's blkparse makes of a trace; `None` (and a word about it) where there is none. CI has it.
fn blkparse(name: &Path) -> Option<Vec<Row>> {
    let run = std::process::Command::new("blkparse")
        .current_dir(name.parent().unwrap())
        .args(["-q", "-i", name.file_name().unwrap().to_str().unwrap()])
        .args(["-f", "%M %m %c %s %T %t %p %a %d %S %N %e\\n"])
        .output();
    let out = match run {
        Ok(out) => out,
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "blkparse: {e}");
            eprintln!("skipped: blkparse: {e}; install it (apt-get install blktrace) to compare with it");
            return None;
        }
    };
    assert!(out.status.success());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Some(
        text.lines()
            .filter_map(|line| {
                let w: Vec<&str> = line.split_whitespace().collect();
                // Messages have a form of their own, which -f does not change.
                let [major, minor, cpu, number, s, ns, pid, action, rwbs, sector, bytes, error] = w[..] else {
                    return None;
                };
                let time = s.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?;
                Some((
                    major.parse().ok()?,
                    minor.parse().ok()?,
                    cpu.parse().ok()?,
                    number.parse().ok()?,
                    time,
                    pid.parse().ok()?,
                    action.to_string(),
                    rwbs.to_string(),
                    sector.parse().ok()?,
                    bytes.parse().ok()?,
                    error.parse().ok()?,
                ))
            })
            .collect(),
    )
}

/// Debian 12's blkparse knows no control groups ("Bad fs action"): it gets the records without their ids.
fn strip_control_groups(base: &Path, into: &Dir) {
    for cpu in 0..2 {
        let bytes = std::fs::read(format!("{}.blktrace.{cpu}", base.display())).unwrap();
        let (mut at, mut out) = (0, Vec::new());
        while at < bytes.len() {
            let u16_at = |n: usize| u16::from_le_bytes(bytes[at + n..at + n + 2].try_into().unwrap());
            let length = usize::from(u16_at(46));
            let mut header = bytes[at..at + 48].to_vec();
            let mut pdu = &bytes[at + 48..at + 48 + length];
            if u16_at(28) & 0x100 != 0 {
                header[29] = 0;
                pdu = &pdu[8..];
                header[46..48].copy_from_slice(&(length as u16 - 8).to_le_bytes());
            }
            out.extend([&header, pdu].concat());
            at += 48 + length;
        }
        into.write(&format!("t.blktrace.{cpu}"), &out);
    }
}

#[test]
fn every_field_of_every_recorded_event_is_what_blkparse_says() {
    for name in RECORDED {
        let path = data(name);
        let trace = Trace::open(&path).unwrap();
        let mut ours: Vec<Row> = Vec::new();
        trace
            .for_each_pair(&mut |pair| {
                let (Some(record), Some(event)) = (pair.record, pair.event) else { return };
                let EventKind::Block(b) = event.kind else { return };
                let Some(Value::Unsigned(number)) = record.get("sequence") else { panic!("no number") };
                let (time, pid) = (event.time.0, event.tid);
                let action = b.action.letters().to_string();
                let (cpu, error) = (event.cpu.into(), i64::from(b.error as u16));
                let (major, minor) = (b.device.major(), b.device.minor());
                // blkparse calls a read of nothing "N" (a plug has no direction of its own).
                let flags = b.flags.to_string();
                let flags = if b.bytes == 0 { flags.replace('R', "N") } else { flags };
                ours.push((major, minor, cpu, number, time, pid.0, action, flags, b.sector, b.bytes, error));
            })
            .unwrap();
        assert!(trace.losses().is_empty(), "{name}: {:?}", trace.losses());
        assert!(ours.len() > 30, "{name}");
        let without = Dir::new(&format!("blkparse-{}", name.replace('/', "-")));
        strip_control_groups(&path, &without);
        let Some(mut theirs) = blkparse(&without.0.join("t")) else { return };
        // blkparse counts times from the first record.
        let by_number = |r: &Row| (r.2, r.3);
        ours.sort_by_key(by_number);
        theirs.sort_by_key(by_number);
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let first = ours[0].4 - theirs[0].4;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let mut theirs = theirs.clone();
            theirs.4 += first;
            assert_eq!(*ours, theirs, "{name}");
        }
        println!("{name}: {} events, every field as blkparse has it", ours.len());
    }
}

#[test]
fn recorded_details_and_control_groups() {
    let kinds = |name: &str| {
        let trace = Trace::open(&data(name)).unwrap();
        assert!(trace.losses().is_empty(), "{name}: {:?}", trace.losses());
        (events(&trace), trace)
    };
    let blocks = |all: &[Event]| -> Vec<_> {
        all.iter().filter_map(|e| if let EventKind::Block(b) = e.kind { Some(b) } else { None }).collect()
    };
    for name in RECORDED.iter().filter(|n| n.ends_with("main")) {
        let (all, trace) = kinds(name);
        assert!(all.iter().any(|e| e.kind == EventKind::Mark { name: "a message".into() }), "{name}: a message");
        let work = all.iter().find(|e| trace.comm(e.tid, e.time) == Some("work"));
        assert!(work.is_some(), "{name}: names");
        assert!(trace.facts_json()["blktrace"]["wall_clock"]["realtime_ns"].is_u64(), "{name}");
        for b in blocks(&all) {
            if let BlockDetail::Split { sector } = b.detail {
                assert_eq!(sector, b.end(), "{name}: a split's second part begins where its first ends");
            }
        }
        assert!(blocks(&all).iter().any(|b| matches!(b.detail, BlockDetail::Unplug { requests: 1.. })), "{name}");
    }
    // Device mapper: 1 MiB into the device below.
    for name in ["armv7-6.1/nullb0", "armv7-newest/nullb0"] {
        let (all, _) = kinds(name);
        let remaps: Vec<_> = blocks(&all)
            .into_iter()
            .filter_map(|b| match b.detail {
                BlockDetail::Remap { sector, device } => Some((b.sector, sector, device != b.device)),
                _ => None,
            })
            .collect();
        assert!(!remaps.is_empty() && remaps.iter().all(|&(to, from, other)| to == from + 2048 && other), "{name}");
    }
    for name in ["armv7-6.1/cgroup", "x86_64-6.1/cgroup"] {
        let (all, _) = kinds(name);
        assert!(blocks(&all).iter().any(|b| b.cgroup > 0), "{name}");
        assert_eq!(blocks(&all).iter().filter(|b| b.action == BlockAction::Queue).count(), 40, "{name}");
    }
}

#[test]
fn version_8_as_linux_7_2_writes_it() {
    for board in ["armv7", "x86_64"] {
        version_8_of(board);
    }
}

fn version_8_of(board: &str) {
    let trace = Trace::open(&data(&format!("{board}-newest/v8"))).unwrap();
    assert_eq!(trace.facts_json()["blktrace"]["version"], 8);
    assert!(trace.losses().is_empty(), "{:?}", trace.losses());
    let all = events(&trace);
    let count = |action| {
        let writes = |e: &&Event| matches!(e.kind, EventKind::Block(b) if b.action == action && b.bytes == 65536);
        all.iter().filter(writes).count()
    };
    // tests/blktrace/work.c writes 64 KiB eight times.
    assert_eq!((count(BlockAction::Queue), count(BlockAction::Complete)), (8, 8));
    assert!(
        all.iter().any(|e| matches!(e.kind, EventKind::Block(b) if b.flags.has(flashscope_trace::RequestFlags::ZONE)))
    );
}

#[test]
fn the_kernels_block_trace_events_are_the_same_model() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace_dat");
    for name in ["armv7-6.1-v6.dat", "armv7-6.1-v7-none.dat", "armv7-7.2-v7-zlib.dat"] {
        let trace = Trace::open(&data.join(name)).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        trace
            .for_each_pair(&mut |pair| {
                let (Some(record), Some(event)) = (pair.record, pair.event) else { return };
                if record.schema.system != "block" {
                    return;
                }
                let EventKind::Block(b) = event.kind else { return };
                *seen.entry(b.action).or_insert(0) += 1;
                let field = |name: &str| match record.get(name) {
                    Some(Value::Unsigned(v)) => Some(v),
                    Some(Value::Signed(v)) => Some(v as u64),
                    _ => None,
                };
                assert_eq!(field("dev").unwrap_or(0), u64::from(b.device.0), "{name}");
                assert_eq!(field("sector").unwrap_or(0), b.sector, "{name}");
                if let Some(sectors) = field("nr_sector").filter(|&n| n > 0) {
                    assert_eq!(b.bytes, sectors * 512, "{name}");
                }
                if let Some(Value::Text(letters)) = record.get("rwbs") {
                    assert_eq!(b.flags.to_string().as_bytes(), letters, "{name}");
                }
            })
            .unwrap();
        // work.sh reads 12 blocks of a null block device.
        for action in [BlockAction::Queue, BlockAction::Issue, BlockAction::Complete] {
            assert!(seen.get(&action).is_some_and(|&n| n > 0), "{name}: {seen:?}");
        }
    }
}

#[test]
fn parts_in_memory_read_as_their_files_do() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blktrace/armv7-6.1");
    let from_files = Trace::open(&directory.join("main")).unwrap();
    let parts = [0, 1].map(|n| std::fs::read(directory.join(format!("main.blktrace.{n}"))).unwrap().into());
    let from_memory = Trace::from_blktrace_parts(Path::new("main"), &parts).unwrap();
    let all = events(&from_files);
    assert!(all.len() > 500, "{}", all.len());
    assert_eq!(all, events(&from_memory));
    assert_eq!((from_files.losses(), from_files.cpus()), (from_memory.losses(), from_memory.cpus()));
    assert_eq!(from_files.facts_json(), from_memory.facts_json());
}
