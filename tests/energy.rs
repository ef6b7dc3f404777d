//! Energy by the kernel's own drivers of power sensors: an LTC4215 under hwmon and an INA226 under IIO, whose chips are
//! registers in memory (`i2c-stub`, the kernel's test driver of I2C). The figures are what the drivers make of the registers.

use flashscope_tests::Plan;
use serde_json::Value;

const AGENT: &str = "/flashscope/agent";

/// Registers of the LTC4215 (drivers/hwmon/ltc4215.c): SENSE counts 151 µV at 4 mΩ, ADIN 482 × 1.25 / 10 mV; power is their
/// product.
fn ltc4215_uw(sense: u64, adin: u64) -> u64 {
    (sense * 151 / 4) * (adin * 482 * 125 / 1000)
}

fn sensor<'a>(result: &'a Value, name: &str) -> &'a Value {
    let found = result["sensors"].as_array().into_iter().flatten().find(|sensor| sensor["name"] == name);
    found.unwrap_or_else(|| panic!("no sensor {name}: {result}"))
}

#[test]
fn the_kernels_own_drivers_are_read_and_one_that_goes_is_told() {
    let mut plan = Plan::new("x86_64", "6.1");
    plan.no_nand = true;
    plan.modules = &["i2c_stub chip_addr=0x44,0x40", "i2c_dev", "ltc4215", "ina2xx_adc"];
    plan.packages = &["i2c-tools", "busybox-static"];
    // Without Perl, for which i2cset has no use.
    plan.only_packages = &["i2c-tools", "busybox", "libi2c0", "libc6"];
    // -f: also while a driver has the chip.
    let set = |chip: &str, register: &str, value: &str| format!("i2cset -f -y 0 {chip} {register} {value}");
    // An hwmon driver asks its chip anew after 100 ms.
    let busy = format!("{}; {}; sleep 2; echo said", set("0x44", "4", "90"), set("0x40", "3", "0x2d00 w"));
    plan.files.push(("/busy", 0o755, format!("#!/bin/busybox sh\n{busy}\n").into_bytes()));
    let gone = "#!/bin/busybox sh\nsleep 1\necho 0x40 > /sys/bus/i2c/devices/i2c-0/delete_device\nsleep 1\n";
    plan.files.push(("/gone", 0o755, gone.as_bytes().to_vec()));
    let energy = format!("{AGENT} energy --idle-ms 1000 --interval-ms 20");
    plan.lines = [
        "device-wait /sys/bus/i2c/devices/i2c-0/new_device 5000".to_owned(),
        format!("run idle-a {}", set("0x44", "4", "50")),
        format!("run idle-b {}", set("0x44", "6", "200")),
        // Big-endian on the wire, little-endian in SMBus: 25 counts, then 45.
        format!("run idle-c {}", set("0x40", "3", "0x1900 w")),
        "write /sys/bus/i2c/devices/i2c-0/new_device ltc4215%200x44".to_owned(),
        "write /sys/bus/i2c/devices/i2c-0/new_device ina226%200x40".to_owned(),
        format!("run list {AGENT} energy --list"),
        "run scale busybox cat /sys/bus/iio/devices/iio:device0/in_power2_scale".to_owned(),
        format!("run measured {energy} -- /bin/busybox sh /busy"),
        format!("run gone {energy} -- /bin/busybox sh /gone"),
    ]
    .into();
    let booted = plan.boot();
    println!("{}", booted.json("list"));

    let scale_mw: f64 = String::from_utf8_lossy(&booted.step("scale").stdout).trim().parse().expect("a scale");
    let measured = booted.json("measured");
    let duration_ns = |result: &Value| {
        result["measured"]["end_ns"].as_u64().expect("a time")
            - result["measured"]["begin_ns"].as_u64().expect("a time")
    };
    for (name, idle, busy) in [
        ("ltc4215/power1", ltc4215_uw(50, 200) as f64, ltc4215_uw(90, 200) as f64),
        ("ina226/in_power2", 25.0 * scale_mw * 1000.0, 45.0 * scale_mw * 1000.0),
    ] {
        let of = sensor(&measured, name);
        println!("{of}");
        assert_eq!((&of["basis"], &of["failed"]), (&Value::from("measured"), &Value::from(0)));
        let near = |value: &Value, expected: f64, part: f64| {
            let value = value.as_f64().unwrap_or_else(|| panic!("{name}: {of}"));
            assert!((value - expected).abs() <= expected * part, "{name}: {value}, expected {expected}");
        };
        near(&of["idle_uw"], idle, 0.001);
        // The first moments are idle still: the shell and i2cset start, and a driver keeps what it has read for a while.
        near(&of["mean_uw"], busy, 0.2);
        assert!(of["mean_uw"].as_f64().is_some_and(|mean| mean < busy * 1.001 && mean > idle * 1.3), "{of}");
        let above = (of["mean_uw"].as_f64().expect("a mean") - idle) * duration_ns(&measured) as f64 / 1e9;
        near(&of["above_idle_uj"], above, 0.01);
    }

    // The INA226 goes while the command runs: no figure of it, and the LTC4215's stay.
    let gone = booted.json("gone");
    let said = String::from_utf8_lossy(&booted.step("gone").stderr).into_owned();
    let (lost, kept) = (sensor(&gone, "ina226/in_power2"), sensor(&gone, "ltc4215/power1"));
    println!("{lost}\n{said}");
    assert!(lost["failed"].as_u64().is_some_and(|failed| failed > 5) && lost["problem"].is_string(), "{lost}");
    assert_eq!((&lost["total_uj"], &lost["above_idle_uj"]), (&Value::Null, &Value::Null), "{lost}");
    assert!(said.contains("ina226/in_power2: did not answer"), "{said}");
    assert!(kept["failed"] == 0 && kept["above_idle_uj"].is_number(), "{kept}");
}
