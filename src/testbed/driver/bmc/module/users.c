/* Get User Name (IPMI 2.0, section 22.29): ipmi_sim 2.0.33 refuses it for user 1, whose name is fixed: empty. */
#include <string.h>

#include "bmc.h"

#define NETFN_APP 0x06
#define CMD_GET_NAME 0x46
#define NAME_SIZE 16

static void get_name(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len, void *data)
{
	sys_data_t *sys = data;
	unsigned int user;

	if (msg->len < 1) {
		answer(rdata, rdata_len, CC_LENGTH);
		return;
	}
	user = msg->data[0] & 0x3f;
	if (user < 1 || user > MAX_USERS) {
		answer(rdata, rdata_len, CC_INVALID_FIELD);
		return;
	}
	rdata[0] = CC_OK;
	memcpy(rdata + 1, sys->mc_get_users(mc)[user].username, NAME_SIZE);
	if (user == 1)
		memset(rdata + 1, 0, NAME_SIZE);
	*rdata_len = 1 + NAME_SIZE;
}

int users_register(sys_data_t *sys)
{
	return ipmi_emu_register_cmd_handler(NETFN_APP, CMD_GET_NAME, get_name, sys);
}
