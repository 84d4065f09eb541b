/*
 * The BMC's watchdog timer (IPMI 2.0, section 27): reset, set and get, its actions, and its event.
 *
 * It belongs to one start of the node: a node that was reset or switched off meanwhile, however that came, has no running
 * timer any more. Its state lies in the file watchdog of the BMC's folder, so that it goes on when the BMC is started again.
 * No interrupt can be given before the time-out, and the bytes for that are refused.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bmc.h"

#define NETFN_APP 0x06
#define CMD_RESET 0x22
#define CMD_SET 0x24
#define CMD_GET 0x25
#define CC_NOT_INITIALISED 0x80

#define DONT_LOG 0x80
#define DONT_STOP 0x40
#define USE 0x07
#define ACTION 0x07
#define PRE_TIMEOUT 0x70

#define SENSOR_TYPE_WATCHDOG2 0x23
#define SENSOR_NUMBER 0x2f
#define EVENT_SENSOR_SPECIFIC 0x6f
#define EVENT_REVISION 0x04
#define RECORD_SYSTEM_EVENT 0x02

static struct {
	unsigned int is_set, running, use, action, pre_timeout, expired, count;
	int64_t until;
	long boot;
} state;

static ipmi_timer_t *timer;
static sys_data_t *system_data;

static void save(void)
{
	char path[4096], fresh[4096];
	FILE *file;

	path_of("watchdog", path, sizeof(path));
	path_of("watchdog.new", fresh, sizeof(fresh));
	file = fopen(fresh, "we");
	if (!file)
		return;
	fprintf(file, "%x %x %x %x %x %x %x %" PRIx64 " %lx\n", state.is_set, state.running, state.use, state.action,
		state.pre_timeout, state.expired, state.count, state.until, state.boot);
	if (fclose(file) == 0 && rename(fresh, path) < 0)
		perror("infrabed: the watchdog's state could not be kept");
}

static void load(void)
{
	char path[4096];
	FILE *file;

	path_of("watchdog", path, sizeof(path));
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "%x %x %x %x %x %x %x %" SCNx64 " %lx", &state.is_set, &state.running, &state.use,
		   &state.action, &state.pre_timeout, &state.expired, &state.count, &state.until,
		   &state.boot) != 9)
		memset(&state, 0, sizeof(state));
	fclose(file);
}

static int runs(void)
{
	if (state.running && state.boot != boots())
		state.running = 0;
	return state.running;
}

static void arm(void)
{
	struct timeval left = {0, 1000};
	int64_t ms = state.until - now_ms();

	if (ms > 0) {
		left.tv_sec = ms / 1000;
		left.tv_usec = ms % 1000 * 1000;
	}
	system_data->stop_timer(timer);
	system_data->start_timer(timer, &left);
}

static void start(void)
{
	state.running = 1;
	state.boot = boots();
	state.until = now_ms() + (int64_t)state.count * 100;
	save();
	arm();
}

static void log_expiry(unsigned int action)
{
	unsigned char event[13] = {0};

	/* Generator 20h (the BMC itself); the time stamp is the log's. */
	event[4] = 0x20;
	event[6] = EVENT_REVISION;
	event[7] = SENSOR_TYPE_WATCHDOG2;
	event[8] = SENSOR_NUMBER;
	event[9] = EVENT_SENSOR_SPECIFIC;
	/* Offsets 0 to 3 are: expired, reset, power down, power cycle. Event data 2 holds use, and no interrupt. */
	event[10] = 0xc0 | action;
	event[11] = state.use & USE;
	event[12] = 0xff;
	mc_new_event(system_data->mc, RECORD_SYSTEM_EVENT, event);
}

static void expire(void *data)
{
	static const char *const acts[] = {NULL, "reset", "off", "cycle"};
	unsigned int action = state.action & ACTION;

	(void)data;
	if (!runs())
		return;
	if (now_ms() < state.until) {
		arm();
		return;
	}
	state.running = 0;
	if (line_power() == POWER_OFF) {
		save();
		return;
	}
	state.expired |= 1u << (state.use & USE);
	if (!(state.use & DONT_LOG))
		log_expiry(action);
	/* "Don't log" is for one time-out. */
	state.use &= ~(unsigned int)DONT_LOG;
	save();
	if (acts[action] && line_request(acts[action], "watchdog"))
		system_data->log(system_data, OS_ERROR, NULL, "The watchdog's action could not be handed over.");
}

static void reset(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	(void)mc, (void)msg, (void)data;
	if (!state.is_set) {
		answer(rdata, rdata_len, CC_NOT_INITIALISED);
		return;
	}
	start();
	answer(rdata, rdata_len, CC_OK);
}

static void set(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	unsigned int use, was_running = runs();

	(void)mc, (void)data;
	if (msg->len < 6) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	use = msg->data[0] & USE;
	if (use < 1 || use > 5 || (msg->data[1] & ACTION) > 3 || (msg->data[1] & PRE_TIMEOUT) != 0) {
		answer(rdata, rdata_len, CC_INVALID_FIELD);
		return;
	}
	state.is_set = 1;
	state.use = msg->data[0] & (DONT_LOG | DONT_STOP | USE);
	state.action = msg->data[1] & ACTION;
	state.pre_timeout = msg->data[2];
	state.expired &= ~(unsigned int)msg->data[3];
	state.count = msg->data[4] | (unsigned int)msg->data[5] << 8;
	if (was_running && (state.use & DONT_STOP)) {
		start();
	} else {
		state.running = 0;
		save();
	}
	answer(rdata, rdata_len, CC_OK);
}

static void get(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	int64_t left = 0;

	(void)mc, (void)msg, (void)data;
	if (runs()) {
		left = (state.until - now_ms() + 99) / 100;
		left = left < 0 ? 0 : left;
	} else {
		left = state.count;
	}
	rdata[0] = CC_OK;
	rdata[1] = (state.use & (DONT_LOG | USE)) | (state.running ? 0x40 : 0);
	rdata[2] = state.action;
	rdata[3] = state.pre_timeout;
	rdata[4] = state.expired;
	rdata[5] = state.count & 0xff;
	rdata[6] = state.count >> 8;
	rdata[7] = left & 0xff;
	rdata[8] = left >> 8;
	*rdata_len = 9;
}

int watchdog_register(sys_data_t *sys)
{
	int failure = sys->alloc_timer(sys, expire, NULL, &timer);

	system_data = sys;
	if (!failure)
		failure = ipmi_emu_register_cmd_handler(NETFN_APP, CMD_RESET, reset, NULL);
	if (!failure)
		failure = ipmi_emu_register_cmd_handler(NETFN_APP, CMD_SET, set, NULL);
	if (!failure)
		failure = ipmi_emu_register_cmd_handler(NETFN_APP, CMD_GET, get, NULL);
	if (failure)
		return failure;
	load();
	if (runs())
		arm();
	return 0;
}
