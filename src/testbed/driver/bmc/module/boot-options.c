/*
 * System boot options, parameters 0 to 5 (IPMI 2.0, sections 28.12 and 28.13, table 28-14).
 *
 * They lie in the file boot-options of the BMC's folder, which whoever stands for the node's firmware reads at each boot,
 * too, and writes when it has used up an override that is for one boot. So nothing is kept in memory, and everything is
 * done under the lock boot-options.lock. Lines of the file, numbers in hex:
 *
 *     parameters PROGRESS SERVICE-PARTITION SCAN CLEARING ACKNOWLEDGE
 *     flags BYTE BYTE BYTE BYTE BYTE
 *     locked BITS             (parameters that were marked invalid)
 *     until MILLISECONDS      (since the host's boot, when the flags stop being valid; 0: they do not)
 *     taken 0|1               (the firmware has made these persistent flags its own)
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "bmc.h"

#define NETFN_CHASSIS 0x00
#define CMD_SET 0x08
#define CMD_GET 0x09
#define PARAMETER_VERSION 0x01

#define SET_COMPLETE 0x00
#define SET_IN_PROGRESS 0x01
#define COMMIT_WRITE 0x02

#define FLAGS_VALID 0x80
#define KEEP_BEYOND_TIMEOUT 0x08
#define VALID_MS 60000

struct options {
	unsigned int progress, service, scan, clearing, acknowledge;
	unsigned int flags[5];
	unsigned int locked;
	int64_t until;
	unsigned int taken;
};

/* Bytes of data of each parameter. */
static const unsigned int lengths[] = {1, 1, 1, 1, 2, 5};
#define PARAMETERS (sizeof(lengths) / sizeof(lengths[0]))

static int lock_options(void)
{
	char path[4096];
	int lock;

	path_of("boot-options.lock", path, sizeof(path));
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock >= 0 && flock(lock, LOCK_EX) < 0) {
		close(lock);
		return -1;
	}
	return lock;
}

static void read_options(struct options *to)
{
	char path[4096];
	FILE *file;

	memset(to, 0, sizeof(*to));
	path_of("boot-options", path, sizeof(path));
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "parameters %x %x %x %x %x flags %x %x %x %x %x locked %x until %" SCNx64 " taken %x",
		   &to->progress, &to->service, &to->scan, &to->clearing, &to->acknowledge, &to->flags[0],
		   &to->flags[1], &to->flags[2], &to->flags[3], &to->flags[4], &to->locked, &to->until,
		   &to->taken) != 13)
		memset(to, 0, sizeof(*to));
	fclose(file);
	if (to->until != 0 && now_ms() >= to->until) {
		to->flags[0] &= ~FLAGS_VALID;
		to->until = 0;
	}
}

static int write_options(const struct options *from)
{
	char path[4096], fresh[4096];
	FILE *file;

	path_of("boot-options", path, sizeof(path));
	path_of("boot-options.new", fresh, sizeof(fresh));
	file = fopen(fresh, "we");
	if (!file)
		return errno;
	fprintf(file, "parameters %x %x %x %x %x\nflags %x %x %x %x %x\nlocked %x\nuntil %" PRIx64 "\ntaken %x\n",
		from->progress, from->service, from->scan, from->clearing, from->acknowledge, from->flags[0],
		from->flags[1], from->flags[2], from->flags[3], from->flags[4], from->locked, from->until,
		from->taken);
	if (fclose(file) != 0 || rename(fresh, path) < 0)
		return errno;
	return 0;
}

static void restart_countdown(struct options *options)
{
	int counts = (options->flags[0] & FLAGS_VALID) && !(options->clearing & KEEP_BEYOND_TIMEOUT) &&
		     !options->taken;

	options->until = counts ? now_ms() + VALID_MS : 0;
}

void boot_options_restart_countdown(void)
{
	struct options options;
	int lock = lock_options();

	if (lock < 0)
		return;
	read_options(&options);
	/* Flags that have run out stay so. */
	if (options.until != 0) {
		restart_countdown(&options);
		write_options(&options);
	}
	close(lock);
}

/* Devices that the nodes' firmware knows: none, network, disk, CD, set-up. */
static int knows_device(unsigned int flags)
{
	unsigned int device = flags >> 2 & 0xf;

	return device <= 2 || device == 5 || device == 6;
}

static unsigned char change(struct options *options, unsigned int parameter, const unsigned char *bytes)
{
	unsigned int i;

	switch (parameter) {
	case 0:
		if ((bytes[0] & 3) == 3)
			return CC_INVALID_FIELD;
		if ((bytes[0] & 3) == SET_IN_PROGRESS && options->progress == SET_IN_PROGRESS)
			return CC_SET_IN_PROGRESS;
		/* Without roll-back a commit is the end, too. */
		options->progress = (bytes[0] & 3) == SET_IN_PROGRESS ? SET_IN_PROGRESS : SET_COMPLETE;
		return CC_OK;
	case 1:
		options->service = bytes[0];
		return CC_OK;
	case 2:
		options->scan = bytes[0] & 3;
		return CC_OK;
	case 3:
		options->clearing = bytes[0] & 0x1f;
		restart_countdown(options);
		return CC_OK;
	case 4:
		options->acknowledge = (options->acknowledge & ~bytes[0] & 0xff) | (bytes[0] & bytes[1]);
		return CC_OK;
	default:
		if (!knows_device(bytes[1]))
			return CC_INVALID_FIELD;
		for (i = 0; i < 5; i++)
			options->flags[i] = bytes[i];
		options->flags[0] &= 0xe0;
		options->taken = 0;
		restart_countdown(options);
		return CC_OK;
	}
}

static void set(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	struct options options;
	unsigned int parameter;
	unsigned char code = CC_OK;
	int lock;

	(void)mc, (void)data;
	if (msg->len < 1) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	parameter = msg->data[0] & 0x7f;
	if (parameter >= PARAMETERS) {
		answer(rdata, rdata_len, CC_PARAMETER_UNSUPPORTED);
		return;
	}
	/* Without data only the mark of the parameter is changed. */
	if (msg->len != 1 && msg->len != 1 + lengths[parameter]) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	lock = lock_options();
	if (lock < 0) {
		answer(rdata, rdata_len, CC_UNSPECIFIED);
		return;
	}
	read_options(&options);
	if (msg->len > 1)
		code = change(&options, parameter, msg->data + 1);
	if (code == CC_OK) {
		options.locked &= ~(1u << parameter);
		options.locked |= (unsigned int)(msg->data[0] >> 7) << parameter;
		code = write_options(&options) ? CC_UNSPECIFIED : CC_OK;
	}
	close(lock);
	answer(rdata, rdata_len, code);
}

static void get(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	struct options options;
	unsigned int parameter, i;
	int lock;

	(void)mc, (void)data;
	if (msg->len < 3) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	parameter = msg->data[0] & 0x7f;
	if (parameter >= PARAMETERS) {
		answer(rdata, rdata_len, CC_PARAMETER_UNSUPPORTED);
		return;
	}
	lock = lock_options();
	if (lock < 0) {
		answer(rdata, rdata_len, CC_UNSPECIFIED);
		return;
	}
	read_options(&options);
	close(lock);
	rdata[0] = CC_OK;
	rdata[1] = PARAMETER_VERSION;
	rdata[2] = (options.locked >> parameter & 1) << 7 | parameter;
	*rdata_len = 3 + lengths[parameter];
	switch (parameter) {
	case 0:
		rdata[3] = options.progress;
		break;
	case 1:
		rdata[3] = options.service;
		break;
	case 2:
		rdata[3] = options.scan;
		break;
	case 3:
		rdata[3] = options.clearing;
		break;
	case 4:
		/* The write mask is read as zero. */
		rdata[3] = 0;
		rdata[4] = options.acknowledge;
		break;
	default:
		for (i = 0; i < 5; i++)
			rdata[3 + i] = options.flags[i];
	}
}

int boot_options_register(void)
{
	int failure = ipmi_emu_register_cmd_handler(NETFN_CHASSIS, CMD_SET, set, NULL);

	return failure ? failure : ipmi_emu_register_cmd_handler(NETFN_CHASSIS, CMD_GET, get, NULL);
}
