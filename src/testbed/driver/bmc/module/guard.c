/*
 * Refuses sessions without authentication. ipmi_sim 2.0.33 accepts cipher suite 0 (RAKP-none) from everybody who knows the
 * name of an account, whatever the password, and has no setting against it. This library is loaded ahead of its own, so
 * that every packet comes by here first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "bmc.h"

typedef void (*handler)(lanserv_data_t *lan, uint8_t *data, int len, void *from, int from_len);

/* Places in the packet: RMCP header, authentication type, payload type, session id, sequence number, length, payload. */
enum { AUTHENTICATION_TYPE = 4, PAYLOAD_TYPE = 5, PAYLOAD = 16 };
/* Places in an open session request (IPMI 2.0, table 13-9). */
enum { TAG = PAYLOAD, REMOTE_SESSION = PAYLOAD + 4, AUTHENTICATION_LENGTH = PAYLOAD + 11, ALGORITHM = PAYLOAD + 12 };

#define RMCP_PLUS 0x06
#define OPEN_SESSION_REQUEST 0x10
#define OPEN_SESSION_RESPONSE 0x11
#define RAKP_NONE 0x00
/* Table 13-15: no cipher suite match with proposed security algorithms. */
#define NO_MATCHING_SUITE 0x11

static int is_without_authentication(const uint8_t *data, int len)
{
	return len > ALGORITHM && data[AUTHENTICATION_TYPE] == RMCP_PLUS &&
	       (data[PAYLOAD_TYPE] & 0x3f) == OPEN_SESSION_REQUEST && data[AUTHENTICATION_LENGTH] != 0 &&
	       (data[ALGORITHM] & 0x3f) == RAKP_NONE;
}

static void refuse(lanserv_data_t *lan, const uint8_t *data, void *from, int from_len)
{
	uint8_t reply[PAYLOAD + 8] = {0x06, 0x00, 0xff, 0x07, RMCP_PLUS, OPEN_SESSION_RESPONSE};
	struct iovec whole = {.iov_base = reply, .iov_len = sizeof(reply)};

	reply[14] = 8;
	reply[PAYLOAD] = data[TAG];
	reply[PAYLOAD + 1] = NO_MATCHING_SUITE;
	memcpy(reply + PAYLOAD + 4, data + REMOTE_SESSION, 4);
	lan->send_out(lan, &whole, 1, from, from_len);
}

IPMI_LANSERV_DLL_PUBLIC
void ipmi_handle_lan_msg(lanserv_data_t *lan, uint8_t *data, int len, void *from, int from_len)
{
	static handler real;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "ipmi_handle_lan_msg");
	/* Without it nothing could be answered at all. */
	if (!real)
		abort();
	if (is_without_authentication(data, len))
		refuse(lan, data, from, from_len);
	else
		real(lan, data, len, from, from_len);
}
