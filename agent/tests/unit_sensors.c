// SPDX-License-Identifier: Apache-2.0
/* Sensors as the kernel shows them; the values are moved by hand between the samples. */
#include "sensors.h"
#include "test.h"

static void found(void)
{
	static const char *const flash_rail[] = { "flash rail" };
	struct fs_sensors sensors;

	test_root_begin();
	fs_sensors_find(&sensors, NULL, 0);
	CHECK_NUMBER(sensors.count, 0);

	/* an INA219 (drivers/hwmon/ina2xx.c), an INA226 under IIO (drivers/iio/adc/ina2xx-adc.c), RAPL */
	test_root_file("/sys/class/hwmon/hwmon0/name", "ina219\n");
	test_root_file("/sys/class/hwmon/hwmon0/power1_input", "250000\n");
	test_root_file("/sys/class/hwmon/hwmon0/power1_label", "flash rail\n");
	test_root_file("/sys/class/hwmon/hwmon0/in1_input", "3300\n");
	test_root_file("/sys/class/hwmon/hwmon1/name", "cpu_meter\n");
	test_root_file("/sys/class/hwmon/hwmon1/energy2_input", "1000\n");
	test_root_file("/sys/bus/iio/devices/iio:device0/name", "ina226\n");
	test_root_file("/sys/bus/iio/devices/iio:device0/in_power2_raw", "40\n");
	test_root_file("/sys/bus/iio/devices/iio:device0/in_power2_scale", "2.5\n");
	test_root_file("/sys/bus/iio/devices/iio:device0/in_power7_raw", "40\n"); /* no scale: nothing to say */
	test_root_file("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
	test_root_file("/sys/class/powercap/intel-rapl:0/energy_uj", "990000\n");
	test_root_file("/sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000\n");
	fs_sensors_find(&sensors, NULL, 0);
	CHECK_NUMBER(sensors.count, 4);
	CHECK_TEXT(sensors.items[0].name, "ina219/power1 (flash rail)");
	CHECK_TEXT(sensors.items[1].name, "cpu_meter/energy2");
	CHECK_TEXT(sensors.items[2].name, "ina226/in_power2");
	CHECK_TEXT(sensors.items[3].name, "package-0/energy_uj");
	CHECK(sensors.items[2].scale == 2500 && sensors.items[3].wraps_at == 1000000);

	fs_sensors_find(&sensors, flash_rail, 1);
	CHECK_NUMBER(sensors.count, 1);
	test_root_end();
}

static void energy(void)
{
	struct fs_sensors sensors;
	struct fs_sensor *power, *counter;
	double mean;

	test_root_begin();
	test_root_file("/sys/class/hwmon/hwmon0/power1_input", "100000\n");
	test_root_file("/sys/class/powercap/a/energy_uj", "990000\n");
	test_root_file("/sys/class/powercap/a/max_energy_range_uj", "1000000\n");
	fs_sensors_find(&sensors, NULL, 0);
	CHECK_NUMBER(sensors.count, 2);
	power = &sensors.items[0];
	counter = &sensors.items[1];
	CHECK_TEXT(power->name, "hwmon0/power1");
	fs_sensor_sample(power, 1000000000);
	fs_sensor_sample(counter, 1000000000);
	CHECK(!fs_sensor_mean(power, &mean));
	/* 0.1 W, then 0.3 W half a second later: 0.1 J; the counter wraps on its way from 0.99 to 1.01 J */
	test_root_file("/sys/class/hwmon/hwmon0/power1_input", "300000\n");
	test_root_file("/sys/class/powercap/a/energy_uj", "10000\n");
	fs_sensor_sample(power, 1500000000);
	fs_sensor_sample(counter, 1500000000);
	CHECK(power->sum == 100000 && counter->sum == 20000);
	CHECK(fs_sensor_mean(power, &mean) && mean == 200000);
	CHECK(fs_sensor_mean(counter, &mean) && mean == 40000);
	CHECK(power->low == 100000 && power->high == 300000);

	/* It stops answering: counted, and nothing is made up. */
	test_root_file("/sys/class/hwmon/hwmon0/power1_input", "");
	fs_sensor_sample(power, 2000000000);
	test_root_file("/sys/class/hwmon/hwmon0/power1_input", "what\n");
	fs_sensor_sample(power, 2500000000);
	CHECK_NUMBER(power->failed, 2);
	CHECK(power->error && power->samples == 2 && power->sum == 100000);
	fs_sensor_begin(power);
	CHECK(!power->failed && !power->samples);
	test_root_end();
}

void test_sensors(void)
{
	found();
	energy();
}
