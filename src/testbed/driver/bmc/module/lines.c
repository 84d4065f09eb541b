/*
 * The lines to a virtual machine: its in-band interface and its serial port. lan.conf can only name TCP ports for them,
 * which would be open to whoever is in that network, and busy for a minute after a restart. What ipmi_sim takes for them are
 * the sockets that it was started with (machine_lines.py): one that listens for the machine, one that is connected already.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bmc.h"

/* 1: `fd` now is the socket that the variable names; 0: it is none of these lines. */
static int replace(int fd, const char *variable)
{
	const char *number = getenv(variable);
	socklen_t size = sizeof(int);
	int type;

	if (!number || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
		return 0;
	/* Neither is for the programs that ipmi_sim starts. */
	if (fcntl(atoi(number), F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return dup3(atoi(number), fd, O_CLOEXEC) < 0 ? -1 : 1;
}

static void *real(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		abort();
	return function;
}

/* The only stream that it binds is the in-band interface. */
IPMI_LANSERV_DLL_PUBLIC
int bind(int fd, const struct sockaddr *address, socklen_t size)
{
	int done = replace(fd, "INFRABED_BMC_KCS");

	if (done)
		return done < 0 ? -1 : 0;
	return ((int (*)(int, const struct sockaddr *, socklen_t))real("bind"))(fd, address, size);
}

/* The only stream that it connects is the serial port. */
IPMI_LANSERV_DLL_PUBLIC
int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	int done = replace(fd, "INFRABED_BMC_SERIAL");

	if (done)
		return done < 0 ? -1 : 0;
	return ((int (*)(int, const struct sockaddr *, socklen_t))real("connect"))(fd, address, size);
}

/* What is set on a TCP connection has no meaning here, and may not fail. */
IPMI_LANSERV_DLL_PUBLIC
int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
	int done = ((int (*)(int, int, int, const void *, socklen_t))real("setsockopt"))(fd, level, option, value, size);

	return done < 0 && level == IPPROTO_TCP && errno == EOPNOTSUPP ? 0 : done;
}
