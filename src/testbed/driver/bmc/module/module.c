/*
 * Loaded by ipmi_sim (lan.conf, loadlib). Its init string is the BMC's folder. What is registered here stands in for
 * commands that ipmi_sim 2.0.33 models only in part: of the boot flags it keeps just the device, and its watchdog
 * refuses every action where no virtual machine hangs on it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "bmc.h"

static char folder[3000];

void answer(unsigned char *rdata, unsigned int *rdata_len, unsigned char code)
{
	rdata[0] = code;
	*rdata_len = 1;
}

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void path_of(const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", folder, name);
}

long boots(void)
{
	char path[4096];
	struct stat found;

	/* Whoever starts the node appends one byte. */
	path_of("boots", path, sizeof(path));
	return stat(path, &found) == 0 ? (long)found.st_size : 0;
}

/* What event log records are stamped with: without this, with the seconds since the host's boot. */
static int wall_clock(sys_data_t *sys, struct timeval *now)
{
	(void)sys;
	return gettimeofday(now, NULL);
}

int ipmi_sim_module_init(sys_data_t *sys, const char *init)
{
	int failure;

	if (!init || strlen(init) >= sizeof(folder))
		return EINVAL;
	strcpy(folder, init);
	sys->get_monotonic_time = wall_clock;
	failure = line_open(sys);
	if (!failure)
		failure = chassis_register();
	if (!failure)
		failure = boot_options_register();
	if (!failure)
		failure = watchdog_register(sys);
	if (!failure)
		failure = users_register(sys);
	return failure;
}
