//! Device mapper and loop devices: the time and the bytes that the layer adds.

use super::{Disk, Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::block::StackLevel;
use crate::units::{counted, duration, grouped, size};
use flashscope_trace::Device;

const MIN_BIOS: u64 = 20;
/// Least share of an upper bio's time, per cent.
const MIN_TIME_PERCENT: f64 = 15.0;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 2.0;
/// Bytes below for each byte above.
const MIN_TIMES: f64 = 1.5;
const MIN_BYTES: u64 = 1 << 20;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let levels = found.stack.iter().filter(|level| level.upper_bios >= MIN_BIOS);
    levels.flat_map(|level| [in_time(seen, level), in_bytes(seen, level)]).flatten().collect()
}

/// Time on the way to the lower device and back, which the layer's own threads take.
fn in_time(seen: &Seen<'_>, level: &StackLevel) -> Option<Finding> {
    let disk = seen.storage.disk(&level.upper);
    let dm_name = dm_name(seen, level, disk)?;
    // A bio behind others may wait for the device below on its way down, as it would without the layer.
    let alone = level.alone.as_ref().filter(|alone| alone.bios >= MIN_BIOS)?;
    let own = alone.mean_own_ns;
    let total = own.saturating_mul(level.upper_bios);
    let part = percent(own, alone.mean_q2c_ns);
    if part < MIN_TIME_PERCENT || seen.of_span(total) < MIN_SPAN_PERCENT {
        return None;
    }
    let uuid = disk.and_then(|disk| disk.dm_uuid.as_deref());
    let crypt = uuid.is_some_and(|uuid| uuid.starts_with("CRYPT-"));
    let upper = seen.storage.device_name(&level.upper);
    let source = "block:block_bio_remap, block_bio_queue, block_bio_complete of both devices";
    let advice = match crypt {
        true => without_queues(dm_name, &upper, part),
        false => look_at_the_table(dm_name),
    };
    let means = [("mean time of one", level.mean_q2c_ns), ("of it in the device below", level.mean_below_ns)];
    let means = means.into_iter().filter_map(|(name, ns)| Some(measure(name, ns? as f64, MeasureUnit::Ns, source)));
    let evidence = [
        measure("bios", level.upper_bios as f64, MeasureUnit::Count, source),
        measure("of them alone", alone.bios as f64, MeasureUnit::Count, source),
        measure("mean time of these", alone.mean_q2c_ns as f64, MeasureUnit::Ns, source),
    ];
    Some(Finding {
        rule: Rule::LayeredDevice,
        weight: Weight::Cost,
        processes: Vec::new(),
        what: format!(
            "{} adds {} to each of {} on {upper}: {part:.0} % of what one takes that is alone.",
            if crypt { "Encryption (dm-crypt)" } else { "The device mapper" },
            duration(own),
            counted(level.upper_bios, "bio")
        ),
        cause: format!(
            "This is the mean of {} of them, which had no other before them on the way to {} and back.",
            grouped(alone.bios),
            seen.storage.device_name(&level.lower)
        ),
        evidence: evidence.into_iter().chain(means).collect(),
        lost_ns: total.into(),
        lost_bytes: None,
        advice: vec![advice],
        uncertain: None,
    })
}

/// Whether the finding reports time that the layer adds.
pub(super) fn adds_time(seen: &Seen<'_>, level: &StackLevel) -> bool {
    level.upper_bios >= MIN_BIOS && in_time(seen, level).is_some()
}

/// The name of a device mapper device in dmsetup; `None` for another device. A device created during the recording is not in the facts,
/// and dmsetup gives none a UUID by itself.
fn dm_name(seen: &Seen<'_>, level: &StackLevel, disk: Option<&Disk>) -> Option<String> {
    let is_kernels = |name: &str| name.starts_with("dm-");
    if let Some(disk) = disk.filter(|disk| disk.dm_uuid.is_some() || disk.dm_name.is_some() || is_kernels(&disk.name)) {
        return Some(disk.dm_name.clone().unwrap_or_else(|| disk.name.clone()));
    }
    let named = seen.storage.device_names.get(Device::parse(&level.upper)?)?;
    let is_dm = is_kernels(&named.name) || named.kernel_name.as_deref().is_some_and(is_kernels);
    is_dm.then(|| named.name.clone())
}

fn without_queues(name: String, upper: &str, part: f64) -> Remedy {
    Remedy {
        what: "Encrypt in the calling thread, without work queues (Linux 5.9 and later)".to_owned(),
        steps: vec![Step::Run {
            command: "cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue".to_owned(),
            names: vec![name],
        }],
        gain: Gain {
            of: format!("mean time of a bio of {upper}"),
            least_percent: 0.0,
            most_percent: part,
            basis: "the wait in the queues of the layer ends, the encryption itself stays".to_owned(),
        }
        .into(),
        risk: "the encryption takes the processor of the thread that reads or writes".to_owned(),
    }
}

fn look_at_the_table(name: String) -> Remedy {
    Remedy {
        what: "Look at what the layer does (its table: delay, cache, snapshot, …), and whether it is needed".to_owned(),
        steps: vec![Step::Run { command: "dmsetup table".to_owned(), names: vec![name] }],
        gain: Evidence::unknown(
            "which part of this time the layer can do without is not in the trace",
            "change its table, and compare two recordings: flashscope diff",
        ),
        risk: "none: it only prints the table".to_owned(),
    }
}

fn in_bytes(seen: &Seen<'_>, level: &StackLevel) -> Option<Finding> {
    let more = level.lower_bytes.saturating_sub(level.upper_bytes);
    if level.upper_bytes == 0 || (level.lower_bytes as f64) < level.upper_bytes as f64 * MIN_TIMES || more < MIN_BYTES {
        return None;
    }
    let (upper, lower) = (seen.storage.device_name(&level.upper), seen.storage.device_name(&level.lower));
    let source = "block:block_bio_remap, block_bio_queue of both devices";
    Some(Finding {
        rule: Rule::DoubleIo,
        weight: Weight::Cost,
        processes: Vec::new(),
        what: format!(
            "{} requested from {upper} become {} on {lower}: {:.1} times as much.",
            size(level.upper_bytes),
            size(level.lower_bytes),
            level.lower_bytes as f64 / level.upper_bytes as f64
        ),
        cause: "The layer between them (mirror, parity, or a file system below a loop device) writes more than once."
            .to_owned(),
        evidence: vec![
            measure("bytes above", level.upper_bytes as f64, MeasureUnit::Bytes, source),
            measure("bytes below", level.lower_bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: Evidence::unknown("without the layer nothing was recorded", ""),
        lost_bytes: Some(more),
        advice: Vec::new(),
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::StackAlone;

    fn work(own_ns: u64, lower_bytes: u64, uuid: Option<&str>) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.block().stack.push(StackLevel {
            upper: "253:0".into(),
            lower: "8:0".into(),
            upper_bios: 100,
            upper_bytes: 4 << 20,
            lower_bios: 100,
            lower_bytes,
            mean_down_ns: Some(own_ns),
            mean_up_ns: Some(0),
            mean_below_ns: Some(1_000_000),
            mean_q2c_ns: Some(1_000_000 + own_ns),
            alone: Some(StackAlone { bios: 60, mean_own_ns: own_ns, mean_q2c_ns: 1_000_000 + own_ns }),
            ..StackLevel::default()
        });
        let dm_uuid = uuid.map(str::to_owned);
        let dm_name = Some("secret".to_owned());
        work.storage.disks.push(Disk {
            name: "dm-0".into(),
            device: "253:0".into(),
            dm_uuid,
            dm_name,
            ..Disk::default()
        });
        work
    }

    #[test]
    fn the_price_of_encryption_is_told() {
        let finding = only(find(&work(1_000_000, 4 << 20, Some("CRYPT-LUKS2-1-secret")).seen()));
        assert_eq!(
            finding.what,
            "Encryption (dm-crypt) adds 1.00 ms to each of 100 bios on dm-0 (253:0): 50 % of what one takes that is alone."
        );
        assert_eq!(finding.advice[0].gain.known().map(|gain| gain.most_percent), Some(50.0));
    }

    /// What waits on the way down may wait for the device below, behind those before it.
    #[test]
    fn a_wait_for_the_device_below_is_not_the_layers() {
        let mut work = work(1_000_000, 4 << 20, Some("CRYPT-LUKS2-1-secret"));
        let level = &mut work.block().stack[0];
        level.alone = Some(StackAlone { bios: 60, mean_own_ns: 50_000, mean_q2c_ns: 1_050_000 });
        assert!(find(&work.seen()).is_empty());
        work.block().stack[0].alone = None;
        assert!(find(&work.seen()).is_empty());
    }

    /// dmsetup made it without a UUID, before the recording or within it.
    #[test]
    fn a_delay_has_no_uuid() {
        let mut work = work(1_000_000, 4 << 20, None);
        for later in [false, true] {
            if later {
                work.storage.disks.clear();
                let names =
                    serde_json::json!({"names": {"devices": [{"device": "253:0", "name": "dm-0", "dm": "slow"}]}});
                work.storage.device_names = flashscope_trace::DeviceNames::of_facts(&names);
            }
            let finding = only(find(&work.seen()));
            assert!(finding.what.starts_with("The device mapper adds 1.00 ms to each of 100 bios"), "{}", finding.what);
            let Step::Run { names, .. } = &finding.advice[0].steps[0] else { panic!("{:?}", finding.advice) };
            assert_eq!(names[0], if later { "slow" } else { "secret" });
        }
        work.storage.device_names = flashscope_trace::DeviceNames::default();
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn a_mirror_doubles_bytes() {
        let finding = only(find(&work(0, 8 << 20, None).seen()));
        assert_eq!(finding.rule, Rule::DoubleIo);
        assert!(finding.what.starts_with("4 MiB requested from dm-0 (253:0) become 8 MiB on 8:0: 2.0 times"));
    }

    #[test]
    fn a_thin_layer_is_not_told() {
        assert!(find(&work(1_000, 4 << 20, Some("LVM-x")).seen()).is_empty());
        assert!(find(&work(1_000, 4 << 20, None).seen()).is_empty());
    }
}
