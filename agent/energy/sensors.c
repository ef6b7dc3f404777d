// SPDX-License-Identifier: Apache-2.0
#include "sensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

/* A whole or decimal number, perhaps negative, at the begin of a file. False with errno. */
static bool read_double(const char *path, double *value)
{
	char text[64], *end;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0) {
		int error = n ? errno : ENODATA;

		close(fd);
		errno = error;
		return false;
	}
	close(fd);
	text[n] = '\0';
	*value = strtod(text, &end);
	if (end == text) {
		errno = EINVAL;
		return false;
	}
	return true;
}

static bool is_wanted(const struct fs_sensor *sensor, const char *const *wanted, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strstr(sensor->name, wanted[i]) || strstr(sensor->path, wanted[i]))
			return true;
	return !count;
}

static void add(struct fs_sensors *sensors, const struct fs_sensor *sensor, const char *const *wanted, size_t count)
{
	if (!is_wanted(sensor, wanted, count))
		return;
	if (sensors->count == FS_MAX_SENSORS)
		sensors->left_out++;
	else
		sensors->items[sensors->count++] = *sensor;
}

/* N + 1 for a file called `prefix` N `suffix`; 0 for another one. */
static unsigned int numbered(const char *file, const char *prefix, const char *suffix)
{
	size_t head = strlen(prefix);
	char *end;
	unsigned long n;

	if (strncmp(file, prefix, head) || file[head] < '0' || file[head] > '9')
		return 0;
	n = strtoul(file + head, &end, 10);
	return n < 1000 && !strcmp(end, suffix) ? (unsigned int)n + 1 : 0;
}

static void set_name(struct fs_sensor *sensor, const char *device, const char *part, const char *label)
{
	snprintf(sensor->name, sizeof(sensor->name), "%.40s/%.20s%s%.28s%s", device, part, label ? " (" : "",
		 label ? label : "", label ? ")" : "");
}

static void hwmon_file(struct fs_sensors *sensors, const char *folder, const char *device, const char *file,
		       const char *const *wanted, size_t count)
{
	struct fs_sensor sensor = { .source = "hwmon", .scale = 1 };
	unsigned int power = numbered(file, "power", "_input"), energy = numbered(file, "energy", "_input");
	char part[32], label_path[FS_PATH_MAX], *label;

	if (!power && !energy)
		return;
	snprintf(part, sizeof(part), "%s%u", power ? "power" : "energy", (power ? power : energy) - 1);
	snprintf(label_path, sizeof(label_path), "%.300s/%s_label", folder, part);
	label = fs_read_value(label_path);
	sensor.kind = power ? FS_SENSOR_POWER : FS_SENSOR_ENERGY;
	set_name(&sensor, device, part, label && *label ? label : NULL);
	free(label);
	if (snprintf(sensor.path, sizeof(sensor.path), "%s/%s", folder, file) < (int)sizeof(sensor.path))
		add(sensors, &sensor, wanted, count);
}

static void iio_file(struct fs_sensors *sensors, const char *folder, const char *device, const char *file,
		     const char *const *wanted, size_t count)
{
	struct fs_sensor sensor = { .source = "iio", .kind = FS_SENSOR_POWER, .scale = 1000 };
	unsigned int raw = numbered(file, "in_power", "_raw"), input = numbered(file, "in_power", "_input");
	char part[32], path[FS_PATH_MAX];
	double scale;

	if (!raw && !input)
		return;
	snprintf(part, sizeof(part), "in_power%u", (raw ? raw : input) - 1);
	if (raw) {
		/* the scale of this channel, else of all power channels */
		snprintf(path, sizeof(path), "%.300s/%s_scale", folder, part);
		if (!read_double(path, &scale)) {
			snprintf(path, sizeof(path), "%.300s/in_power_scale", folder);
			if (!read_double(path, &scale))
				return;
		}
		sensor.scale *= scale;
	}
	set_name(&sensor, device, part, NULL);
	if (snprintf(sensor.path, sizeof(sensor.path), "%s/%s", folder, file) < (int)sizeof(sensor.path))
		add(sensors, &sensor, wanted, count);
}

static void powercap_file(struct fs_sensors *sensors, const char *folder, const char *device, const char *file,
			  const char *const *wanted, size_t count)
{
	struct fs_sensor sensor = { .source = "powercap", .kind = FS_SENSOR_ENERGY, .scale = 1 };
	char path[FS_PATH_MAX];

	if (strcmp(file, "energy_uj"))
		return;
	snprintf(path, sizeof(path), "%.300s/max_energy_range_uj", folder);
	fs_read_u64(path, &sensor.wraps_at);
	set_name(&sensor, device, "energy_uj", NULL);
	if (snprintf(sensor.path, sizeof(sensor.path), "%s/%s", folder, file) < (int)sizeof(sensor.path))
		add(sensors, &sensor, wanted, count);
}

typedef void file_fn(struct fs_sensors *, const char *, const char *, const char *, const char *const *, size_t);

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void each_file(struct fs_sensors *sensors, const char *class, file_fn *file, const char *const *wanted,
		      size_t wanted_count)
{
	struct dirent **devices, **files;
	char path[FS_PATH_MAX], folder[FS_PATH_MAX];
	int count = scandir(fs_path(path, sizeof(path), "%s", class), &devices, no_dots, by_name);

	for (int i = 0; i < count; i++) {
		char *name;
		int n;

		fs_path(folder, sizeof(folder), "%s/%s", class, devices[i]->d_name);
		snprintf(path, sizeof(path), "%.400s/name", folder);
		name = fs_read_value(path);
		n = scandir(folder, &files, no_dots, by_name);
		for (int f = 0; f < n; f++) {
			file(sensors, folder, name && *name ? name : devices[i]->d_name, files[f]->d_name, wanted,
			     wanted_count);
			free(files[f]);
		}
		if (n >= 0)
			free(files);
		free(name);
		free(devices[i]);
	}
	if (count >= 0)
		free(devices);
}

void fs_sensors_find(struct fs_sensors *sensors, const char *const *wanted, size_t wanted_count)
{
	memset(sensors, 0, sizeof(*sensors));
	each_file(sensors, "/sys/class/hwmon", hwmon_file, wanted, wanted_count);
	each_file(sensors, "/sys/bus/iio/devices", iio_file, wanted, wanted_count);
	each_file(sensors, "/sys/class/powercap", powercap_file, wanted, wanted_count);
}

void fs_sensor_begin(struct fs_sensor *sensor)
{
	sensor->samples = sensor->failed = 0;
	sensor->first_ns = sensor->last_ns = 0;
	sensor->last = sensor->sum = sensor->low = sensor->high = 0;
	sensor->error = 0;
}

void fs_sensor_sample(struct fs_sensor *sensor, uint64_t now_ns)
{
	double value, more;

	if (!read_double(sensor->path, &value)) {
		if (!sensor->failed++)
			sensor->error = errno;
		return;
	}
	value *= sensor->scale;
	if (!sensor->samples++) {
		sensor->first_ns = now_ns;
		sensor->low = sensor->high = value;
	} else if (sensor->kind == FS_SENSOR_ENERGY) {
		more = value - sensor->last;
		/* It wrapped. More than one wrap between two samples would not show. */
		if (more < 0)
			more += (double)sensor->wraps_at;
		sensor->sum += more > 0 ? more : 0;
	} else {
		/* the trapezoid between two samples */
		sensor->sum += (value + sensor->last) / 2 * (double)(now_ns - sensor->last_ns) / 1e9;
		sensor->low = value < sensor->low ? value : sensor->low;
		sensor->high = value > sensor->high ? value : sensor->high;
	}
	sensor->last = value;
	sensor->last_ns = now_ns;
}

bool fs_sensor_mean(const struct fs_sensor *sensor, double *uw)
{
	if (sensor->samples < 2 || sensor->last_ns == sensor->first_ns)
		return false;
	*uw = sensor->sum / ((double)(sensor->last_ns - sensor->first_ns) / 1e9);
	return true;
}
