//! `advise`: what of read-ahead is worth changing for a recorded workload, with evidence, gain, risk and the line to type.

use flashscope_analysis::readahead::{Advice, Change, Predictor, Recorded, advise};
use flashscope_trace::{Device, Trace};
use serde_json::json;

use crate::args::AdviseArgs;
use crate::failure::Failure;
use crate::predict;

mod apply;

pub fn run(args: &AdviseArgs, quiet: bool) -> Result<(), Failure> {
    if args.undo {
        return apply::undo(args, quiet);
    }
    let trace = Trace::open(args.trace.as_deref().unwrap_or("".as_ref()))?;
    let workload = predict::workload(&trace)?;
    let (kernel, exact) = predict::model(&trace, args.model.kernel_model.as_deref())?;
    let predictor = Predictor::new(&workload, predict::storage(&trace, &workload, kernel, args.model.io_kib));
    let now = args.now.unwrap_or_else(|| predictor.recorded(&predict::TRIED_KIB).fits_readahead_kib);
    let storage = Storage::of(&trace, workload.sizes.keys().filter_map(|file| file.device));
    let mut advice = advise(&predictor, now);
    let mut told = diagnoses(&trace, &storage, now);
    if !storage.synchronous && predictor.cost().is_none() {
        // Behind a queue a page that comes early may cost the reader nothing, and many small requests cost it more.
        advice.retain(|one| matches!(one.change, Change::AdviseRandom { .. }));
        let row = predictor.row(now, &|_| false);
        told.push(format!(
            "The knob is not weighed: on this device read-ahead overlaps with the reader, which no cost here holds. Of {} pages \
             {} are read ahead and not used.",
            row.tally.pages(),
            row.tally.pages_unused
        ));
    }
    told.extend(knob_and_pages(&trace, &storage, predictor.recorded(&predict::TRIED_KIB)));
    told.extend(predict::notes(&workload, &trace, kernel, exact));
    if args.json {
        let list: Vec<_> = advice
            .iter()
            .map(|one| json!({"advice": one, "lines": lines(one, &storage), "risk": risk(one, &storage)}))
            .collect();
        let all = json!({"schema": 1, "model": kernel.name(), "readahead_kib_now": now, "advice": list, "notes": told});
        println!("{}", serde_json::to_string_pretty(&all).expect("plain data serialises"));
        return Ok(());
    }
    println!("Read-ahead now: {now} KiB, as the pages tell. Rules of Linux {}.", kernel.name());
    if advice.is_empty() {
        let why = if storage.synchronous {
            ": no setting of read-ahead gains more than 3 %"
        } else {
            ", as far as is weighed"
        };
        println!("Nothing is worth changing{why}.");
    }
    for (n, one) in advice.iter().enumerate() {
        println!("\n{}. {}", n + 1, what(one));
        println!("   Evidence: {}", evidence(one, &trace));
        println!("   Gain: {}", gain(one));
        println!("   Risk: {}", risk(one, &storage));
        for line in lines(one, &storage) {
            println!("   {}", flashscope_report::visible(&line));
        }
    }
    if !told.is_empty() {
        println!();
    }
    for note in &told {
        println!("{}", flashscope_report::visible(note));
    }
    if args.apply {
        let knob = advice.iter().find_map(|one| match one.change {
            Change::SetReadahead { kib } => Some(kib),
            Change::AdviseRandom { .. } => None,
        });
        apply::apply(args, quiet, knob, &storage.knobs)?;
    }
    Ok(())
}

fn what(advice: &Advice) -> String {
    match advice.change {
        Change::SetReadahead { kib: 0 } => "Turn read-ahead off".to_owned(),
        Change::SetReadahead { kib } => format!("Set read-ahead to {kib} KiB"),
        Change::AdviseRandom { file } => format!("Tell the kernel that {} is read at random", predict::file_name(file)),
    }
}

fn evidence(advice: &Advice, trace: &Trace) -> String {
    let mut text =
        format!("{} of {} pages that come are read ahead and not used", advice.unused_pages_now, advice.pages_now);
    if let Some(file) = advice.file {
        text += &format!(", most of {}", predict::file_name(file));
    }
    if let Some(tid) = advice.task {
        let name = trace.comm(tid, flashscope_trace::TimeNs(u64::MAX)).unwrap_or("?");
        text += &format!("; {} ({tid}) brings in most", flashscope_report::visible(name));
    }
    text
}

fn gain(advice: &Advice) -> String {
    let pages = format!("{} pages instead of {}", advice.pages_then, advice.pages_now);
    match (advice.time_now_ns, advice.time_then_ns) {
        (Some(now), Some(then)) => {
            format!(
                "{:.1} % of the time in reads ({:.1} ms instead of {:.1}), {pages}",
                advice.gain_percent,
                then / 1e6,
                now / 1e6
            )
        }
        _ => format!("{:.1} % of pages ({pages}); the trace has nothing to tell time from", advice.gain_percent),
    }
}

/// Where the files lie, and which knob is theirs.
struct Storage {
    /// Directories of /sys/class/bdi.
    knobs: Vec<String>,
    shared: bool,
    synchronous: bool,
}

impl Storage {
    fn of(trace: &Trace, devices: impl Iterator<Item = u32>) -> Storage {
        let mut storage = Storage { knobs: Vec::new(), shared: false, synchronous: false };
        let devices: std::collections::BTreeSet<String> = devices
            .map(|device| {
                let device = Device(device);
                format!("{}:{}", device.major(), device.minor())
            })
            .collect();
        let bdis: Vec<&str> =
            trace.facts()["bdi"].as_array().into_iter().flatten().filter_map(|bdi| bdi["name"].as_str()).collect();
        for mount in trace.facts()["mounts"].as_array().into_iter().flatten() {
            let Some(device) = mount["device"].as_str().filter(|&device| devices.contains(device)) else { continue };
            let kind = mount["type"].as_str().unwrap_or_default();
            storage.synchronous |= matches!(kind, "jffs2" | "ubifs" | "yaffs2");
            match kind {
                "jffs2" => {
                    storage.shared = true;
                    storage
                        .knobs
                        .extend(bdis.iter().find(|name| name.starts_with("mtd-")).map(|&name| name.to_owned()));
                }
                "ubifs" => {
                    storage.knobs.extend(bdis.iter().filter(|name| name.starts_with("ubifs_")).map(|&n| n.to_owned()))
                }
                _ => storage.knobs.push(device.to_owned()),
            }
        }
        storage.knobs.sort();
        storage.knobs.dedup();
        storage
    }
}

fn risk(advice: &Advice, storage: &Storage) -> String {
    let mut text = match advice.change {
        Change::SetReadahead { .. } => "files that are open keep their window: start the program again".to_owned(),
        Change::AdviseRandom { .. } => "streams over this file are no longer read ahead".to_owned(),
    };
    if storage.shared && matches!(advice.change, Change::SetReadahead { .. }) {
        text += "; the knob is that of all MTD devices with JFFS2";
    }
    if !storage.synchronous {
        text += "; smaller windows make more requests, which is not weighed here";
    }
    text
}

/// What to type, now and for good.
fn lines(advice: &Advice, storage: &Storage) -> Vec<String> {
    match advice.change {
        Change::SetReadahead { kib } => {
            let names = if storage.knobs.is_empty() { vec!["MAJOR:MINOR".to_owned()] } else { storage.knobs.clone() };
            let mut lines = Vec::new();
            for name in names {
                let knob = format!("/sys/class/bdi/{name}/read_ahead_kb");
                lines.push(format!("now:          echo {kib} > {knob}"));
                lines.push(format!("tmpfiles.d:   w {knob} - - - - {kib}"));
                lines.push(format!(
                    "udev rule:    SUBSYSTEM==\"bdi\", ACTION==\"add\", KERNEL==\"{name}\", ATTR{{read_ahead_kb}}=\"{kib}\""
                ));
            }
            lines
        }
        Change::AdviseRandom { .. } => {
            vec!["after open(): posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);".to_owned()]
        }
    }
}

/// The knob says one thing and the pages another: files keep the window that they were opened with.
fn knob_and_pages(trace: &Trace, storage: &Storage, recorded: Recorded) -> Option<String> {
    let said = trace.facts()["bdi"].as_array()?.iter().find_map(|bdi| {
        let name = bdi["name"].as_str()?;
        storage.knobs.iter().any(|knob| knob == name).then(|| bdi["read_ahead_kb"].as_u64())?
    })?;
    let fits = recorded.fits_readahead_kib;
    (said != fits && recorded.predicted_pages == recorded.pages && recorded.pages > 0 && recorded.fits_alone).then(|| {
        format!(
            "The knob said {said} KiB when the recording began, and the pages came as with {fits} KiB: files that were open before \
             the knob was changed keep their window. Start the program again."
        )
    })
}

/// Cases in which nothing happens, and nothing says so.
fn diagnoses(trace: &Trace, storage: &Storage, now_kib: u64) -> Vec<String> {
    let mut told = Vec::new();
    let mut asked = 0_u64;
    // What cannot be read is told by the notes.
    let _unread = trace.for_each_pair(&mut |pair| {
        let of_interest = |name: &str| name.contains("fadvise") || name == "sys_enter_readahead";
        asked += u64::from(
            pair.record.is_some_and(|r| r.schema.name.starts_with("sys_enter") && of_interest(&r.schema.name)),
        );
    });
    if asked > 0 && now_kib == 0 && storage.synchronous {
        told.push(format!(
            "{asked} calls of posix_fadvise or readahead: with read-ahead at 0 POSIX_FADV_WILLNEED and readahead() read nothing here, \
             and succeed"
        ));
    }
    if storage.synchronous {
        told.push(
            "This file system reads ahead in the reader itself: what is read ahead costs the reader its time."
                .to_owned(),
        );
    }
    told
}
