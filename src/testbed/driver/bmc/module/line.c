/*
 * The line to the supervisor: a pair of sockets, whose end was inherited as the descriptor INFRABED_BMC_LINE. A request is
 * handed over and carried out behind our back, since ipmi_sim answers nobody while it waits. Only the power state is
 * waited for, and not for long.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bmc.h"

/* A client asks again after a second or two. */
#define POWER_TIMEOUT_MS 1500

static int line = -1;

int line_open(sys_data_t *sys)
{
	const char *number = getenv("INFRABED_BMC_LINE");

	(void)sys;
	if (!number)
		return EINVAL;
	line = atoi(number);
	/* Neither of them is for the programs that ipmi_sim starts. */
	unsetenv("LD_PRELOAD");
	if (fcntl(line, F_SETFD, FD_CLOEXEC) < 0)
		return errno;
	return 0;
}

static int say(const char *text)
{
	return send(line, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int line_request(const char *act, const char *cause)
{
	char text[80];

	snprintf(text, sizeof(text), "act %s %s", act, cause);
	return say(text);
}

enum power line_power(void)
{
	static unsigned int asked;
	char text[80], expected[40];
	int64_t until = now_ms() + POWER_TIMEOUT_MS;
	ssize_t size;

	snprintf(text, sizeof(text), "power %u", ++asked);
	snprintf(expected, sizeof(expected), "power %u ", asked);
	if (say(text))
		return POWER_UNKNOWN;
	for (;;) {
		struct pollfd wait = {.fd = line, .events = POLLIN};
		int64_t left = until - now_ms();

		if (left <= 0)
			return POWER_UNKNOWN;
		if (poll(&wait, 1, (int)left) < 0 && errno != EINTR)
			return POWER_UNKNOWN;
		size = recv(line, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (size == 0)
			return POWER_UNKNOWN;
		if (size < 0)
			continue;
		text[size] = '\0';
		/* An answer to an earlier question came too late for it. */
		if (strncmp(text, expected, strlen(expected)) != 0)
			continue;
		if (strcmp(text + strlen(expected), "on") == 0)
			return POWER_ON;
		return strcmp(text + strlen(expected), "off") == 0 ? POWER_OFF : POWER_UNKNOWN;
	}
}
