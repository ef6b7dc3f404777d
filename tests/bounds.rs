//! Input that asks for more than there is: whole commands stay within their memory and time, and do not panic.

use flashscope_tests::{TempDir, flashscope, output, stdout};

#[test]
fn the_removed_command_names_what_is_there_instead() {
    let tried = output(flashscope().args(["policy", "trace.dat", "--latency-ms", "2"]));
    let stderr = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(tried.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("flashscope: policy was removed in 0.2.0"), "{stderr}");
    assert!(stderr.contains("flashscope advise TRACE") && stderr.contains("flashscope predict TRACE"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// blktrace's records of version 7 with a process number each: two requests' queueing, at these times.
fn blktrace(times: [u64; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, time) in (1_u32..).zip(times) {
        bytes.extend(0x6561_7407_u32.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend((u64::from(number) * 8).to_le_bytes());
        // 4096 bytes, a queued read, process 1, device 8:0, CPU 0, no error, no more data.
        for field in [4096_u32, 0x0001_0001, 1, 8 << 20, 0, 0] {
            bytes.extend(field.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn times_that_no_clock_gives_are_counted() {
    let dir = TempDir::new("odd-times");
    for times in [[1, u64::MAX - 1], [1, 1 << 63], [1, u64::MAX]] {
        let path = dir.path().join("odd.blktrace.0");
        std::fs::write(&path, blktrace(times)).unwrap();
        let report: serde_json::Value =
            serde_json::from_str(&stdout(flashscope().arg("report").arg("--json").arg(&path))).unwrap();
        let odd = report["losses"].as_array().unwrap().iter().find(|loss| loss["name"] == "times_impossible").unwrap();
        assert_eq!((&odd["count"], &report["findings"]["stages"]["bios_queued"]), (&1.into(), &1.into()), "{times:?}");
    }
    // As long as a clock can go.
    let path = dir.path().join("long.blktrace.0");
    std::fs::write(&path, blktrace([1, i64::MAX as u64])).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&stdout(flashscope().arg("report").arg("--json").arg(&path))).unwrap();
    assert_eq!(report["findings"]["stages"]["bios_queued"], 2);
}
