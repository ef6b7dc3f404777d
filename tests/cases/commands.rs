//! Traces of drivers' commands alone: UFS, eMMC, NVMe, SCSI.

use super::{input, report, rows, stage};
use flashscope_tests::{flashscope, stdout};
use serde_json::Value;

/// Requests and bytes of a kind on a device, and the mean of D2C in nanoseconds.
fn kind(report: &Value, name: &str) -> [u64; 3] {
    let groups = report["block"]["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["by"] == "device" && group["name"] == name);
    let group = group.unwrap_or_else(|| panic!("no {name}: {groups:?}"));
    let d2c = group["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == "D2C");
    let mean = d2c.map_or(&Value::Null, |d2c| &d2c["ns"]["mean"]);
    [&group["bios"], &group["bytes"], mean].map(|figure| figure.as_u64().unwrap_or(0))
}

fn with_blocks(case: &str, bytes: &str) -> Value {
    let text = stdout(flashscope().args(["report", "--json", "--block-size", bytes]).arg(input(case)));
    serde_json::from_str(&text).expect("a report")
}

#[test]
fn commands_of_ufs_are_requests() {
    let report = report("commands-ufs");
    assert_eq!(kind(&report, "ufs0 reads"), [2, 8192, 154_000]);
    assert_eq!(kind(&report, "ufs0 writes"), [2, 16384, 550_000]);
    assert_eq!(kind(&report, "ufs0 flushes"), [1, 0, 2_000_000]);
    assert_eq!(stage(&report, "D2C"), [5, 148_000, 2_000_000]);
    let sectors: Vec<u64> = rows("commands-ufs", "requests").iter().filter_map(|row| row["sector"].as_u64()).collect();
    assert_eq!(sectors[..4], [6_221_511 * 8, 9_669_823 * 8, 8000, 8016]);
    assert!(report["missing"][0]["why"].as_str().expect("why").contains("ufshcd_command"), "{}", report["missing"]);
}

#[test]
fn addresses_of_ufs_before_5_12_are_sectors() {
    let report = report("commands-ufs-4.14");
    assert_eq!(kind(&report, "ufs0 writes"), [10, 81920, 1_000_000]);
    let sectors = rows("commands-ufs-4.14", "requests");
    assert_eq!([&sectors[0]["sector"], &sectors[9]["sector"]], [2_880_752, 2_880_896]);
}

#[test]
fn commands_of_cards_are_requests() {
    let report = report("commands-mmc");
    assert_eq!(kind(&report, "mmc0 reads"), [2, 12288, 450_000]);
    assert_eq!(kind(&report, "mmc0 writes"), [2, 12288, 135_815_000]);
    assert_eq!(kind(&report, "mmc0 flushes"), [1, 0, 3_000_000]);
    assert_eq!(kind(&report, "mmc0 discards"), [1, 1 << 20, 8_000_000]);
    assert_eq!(stage(&report, "D2C"), [6, 400_000, 269_630_000]);
    let failures = &report["block"]["errors"]["failures"];
    assert_eq!([&failures[0]["errno"], &failures[0]["sector"]], [-84, 8000], "{failures}");
    // Status and the range of the erase: commands without data.
    assert_eq!(report["block"]["stages"]["without_data"], 3);
}

/// What a card of a virtual board did, as its kernel counted it in /sys/block/mmcblk0/stat.
#[test]
fn commands_of_a_recorded_card_are_those_that_the_kernel_counted() {
    let report = report("commands-mmc-board");
    assert_eq!(kind(&report, "mmc0 reads")[..2], [54, 13_200 * 512]);
    assert_eq!(kind(&report, "mmc0 writes")[..2], [20, 2_728 * 512]);
    assert_eq!(report["block"]["stages"]["without_data"], 20);
    assert_eq!(rows("commands-mmc-board", "requests").len(), 74);
}

#[test]
fn commands_that_count_in_blocks_need_the_size_of_a_block() {
    for case in ["commands-nvme", "commands-scsi"] {
        let rows: &[&str] = &["export", "--to", "csv", "--rows", "requests", "-o", "-"];
        for (command, sides) in [(&["report"][..], 1), (rows, 1), (&["diff"], 2)] {
            let traces = vec![input(case); sides];
            let output = flashscope().args(command).args(traces).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
            assert!(said.contains("--block-size") && said.contains("queue/logical_block_size"), "{said}");
        }
        let both = [input(case), input(case)];
        let text = stdout(flashscope().args(["diff", "--json", "--block-size", "512"]).args(both));
        let changed: Value = serde_json::from_str(&text).expect("a comparison");
        assert!(changed["changes"].as_array().expect("changes").len() > 3, "{changed}");
    }
    let report = with_blocks("commands-nvme", "512");
    assert_eq!(kind(&report, "nvme0n1 writes"), [2, 8192, 138_000]);
    assert_eq!(kind(&report, "nvme0n1 reads"), [3, 131_072 + 1024, 113_333]);
    assert_eq!(kind(&report, "nvme0n1 flushes"), [1, 0, 1_100_000]);
    assert_eq!(report["block"]["errors"]["failures"][0]["errno"], -61);
    assert_eq!(super::lost(&report), ["commands_without_size 1"]);
    assert_eq!(kind(&with_blocks("commands-nvme", "4096"), "nvme0n1 writes"), [2, 65536, 138_000]);

    let report = with_blocks("commands-scsi", "512");
    assert_eq!(kind(&report, "scsi 0:0:0:0 reads"), [2, (2560 + 8) * 512, 34_650_000]);
    assert_eq!(kind(&report, "scsi 0:0:0:3 writes"), [1, 8192, 1_000_000]);
    assert_eq!(kind(&report, "scsi 0:0:0:0 flushes"), [1, 0, 4_000_000]);
    assert_eq!(report["block"]["errors"]["failures"][0]["errno"], -5);
}

#[test]
fn commands_beside_steps_of_the_block_layer_are_none() {
    // The same card, with block events beside its commands.
    let report = report("emmc-fsync-spike");
    let groups = report["block"]["groups"].as_array().expect("groups");
    assert!(groups.iter().all(|group| !group["name"].as_str().is_some_and(|name| name.starts_with("mmc0"))));
}
