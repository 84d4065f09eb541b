/* Chassis status and control (IPMI 2.0, sections 28.2, 28.3 and 28.5). */
#include <stdio.h>

#include "bmc.h"

#define NETFN_CHASSIS 0x00
#define CMD_STATUS 0x01
#define CMD_CONTROL 0x02
#define CMD_IDENTIFY 0x04

/* Power restore policy: unknown. */
#define POLICY_UNKNOWN (3 << 5)
/* Chassis identify: supported, state not told. */
#define IDENTIFY_SUPPORTED (1 << 6)

static void status(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	enum power power = line_power();

	(void)mc, (void)msg, (void)data;
	if (power == POWER_UNKNOWN) {
		answer(rdata, rdata_len, CC_UNSPECIFIED);
		return;
	}
	rdata[0] = CC_OK;
	rdata[1] = POLICY_UNKNOWN | (power == POWER_ON);
	rdata[2] = 0;
	rdata[3] = IDENTIFY_SUPPORTED;
	*rdata_len = 4;
}

static const char *const acts[] = {"off", "on", "cycle", "reset", NULL, "soft"};

static void control(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	unsigned int wanted;
	enum power power;

	(void)mc, (void)data;
	if (msg->len < 1) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	wanted = msg->data[0] & 0xf;
	if (wanted >= sizeof(acts) / sizeof(acts[0]) || !acts[wanted]) {
		answer(rdata, rdata_len, CC_INVALID_FIELD);
		return;
	}
	power = line_power();
	if (power == POWER_UNKNOWN) {
		answer(rdata, rdata_len, CC_UNSPECIFIED);
		return;
	}
	/* Cycle and reset of a system that is off: D5h is what the specification recommends. */
	if ((wanted == 2 || wanted == 3) && power == POWER_OFF) {
		answer(rdata, rdata_len, CC_NOT_IN_PRESENT_STATE);
		return;
	}
	boot_options_restart_countdown();
	answer(rdata, rdata_len, line_request(acts[wanted], "chassis-control") ? CC_UNSPECIFIED : CC_OK);
}

static void identify(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	(void)mc, (void)msg, (void)data;
	/* The light that nobody sees: the request is kept beside those for power. */
	answer(rdata, rdata_len, line_request("identify", "chassis-control") ? CC_UNSPECIFIED : CC_OK);
}

int chassis_register(void)
{
	int failure = ipmi_emu_register_cmd_handler(NETFN_CHASSIS, CMD_STATUS, status, NULL);

	if (!failure)
		failure = ipmi_emu_register_cmd_handler(NETFN_CHASSIS, CMD_CONTROL, control, NULL);
	if (!failure)
		failure = ipmi_emu_register_cmd_handler(NETFN_CHASSIS, CMD_IDENTIFY, identify, NULL);
	return failure;
}
