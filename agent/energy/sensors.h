/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power and energy sensors in sysfs:
 *
 *   hwmon     powerN_input (µW), energyN_input (µJ); e.g. INA2xx (Documentation/hwmon/sysfs-interface.rst)
 *   IIO       in_powerN_raw times in_power_scale (mW), in_powerN_input (mW); Documentation/ABI/testing/sysfs-bus-iio
 *   powercap  energy_uj (µJ), which wraps at max_energy_range_uj; Documentation/power/powercap/powercap.rst
 */
#ifndef FLASHSCOPE_SENSORS_H
#define FLASHSCOPE_SENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FS_MAX_SENSORS 64

enum fs_sensor_kind { FS_SENSOR_POWER, FS_SENSOR_ENERGY };

struct fs_sensor {
	enum fs_sensor_kind kind;
	const char *source; /* "hwmon", "iio", "powercap" */
	char name[96];	    /* "ina219/power1 (flash rail)" */
	char path[256];	    /* file to read */
	double scale;	    /* factor to µW or µJ */
	uint64_t wraps_at;  /* of a counter; 0: unknown */

	/* Since fs_sensor_begin(). */
	uint64_t samples, failed;
	uint64_t first_ns, last_ns;
	double last;  /* µW, or the counter's value in µJ */
	double sum;   /* µJ */
	double low, high; /* µW, power sensors only */
	int error;	  /* errno of the first read that failed */
};

struct fs_sensors {
	struct fs_sensor items[FS_MAX_SENSORS];
	size_t count;
	size_t left_out; /* beyond FS_MAX_SENSORS */
};

/* Finds the sensors whose name or path contains one of `wanted`; all if `wanted` is empty. */
void fs_sensors_find(struct fs_sensors *sensors, const char *const *wanted, size_t wanted_count);

/* Resets the sums. */
void fs_sensor_begin(struct fs_sensor *sensor);

/* Reads the sensor once; now_ns is the time of the sample. */
void fs_sensor_sample(struct fs_sensor *sensor, uint64_t now_ns);

/* Mean power between the first and the last sample in µW; false with fewer than two samples. */
bool fs_sensor_mean(const struct fs_sensor *sensor, double *uw);

#endif
