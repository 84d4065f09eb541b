/* What the virtual BMC adds to ipmi_sim: the line to the supervisor, boot options, chassis control, watchdog. */
#ifndef INFRABED_BMC_H
#define INFRABED_BMC_H

#include <OpenIPMI/lanserv.h>
#include <OpenIPMI/mcserv.h>

/* Completion codes (IPMI 2.0, table 5-2, and those of the commands themselves). */
enum {
	CC_OK = 0x00,
	CC_PARAMETER_UNSUPPORTED = 0x80,
	CC_SET_IN_PROGRESS = 0x81,
	CC_LENGTH = 0xc7,
	CC_INVALID_FIELD = 0xcc,
	CC_NOT_IN_PRESENT_STATE = 0xd5,
	CC_UNSPECIFIED = 0xff,
};

enum power { POWER_OFF = 0, POWER_ON = 1, POWER_UNKNOWN = 2 };

/* module.c */
void answer(unsigned char *rdata, unsigned int *rdata_len, unsigned char code);
/* Milliseconds since the host's boot: all who share a file agree on it, and no clock setting moves it. */
int64_t now_ms(void);
/* Of the BMC's own folder. */
void path_of(const char *name, char *path, size_t size);
/* How often the node was started: what was set for one start does not concern the next. */
long boots(void);

/* line.c: never waits for an act. */
int line_open(sys_data_t *sys);
int line_request(const char *act, const char *cause);
enum power line_power(void);

/* boot-options.c */
int boot_options_register(void);
/* A Chassis Control command was received: the time that boot flags stay valid begins again. */
void boot_options_restart_countdown(void);

/* chassis.c */
int chassis_register(void);

/* watchdog.c */
int watchdog_register(sys_data_t *sys);

/* users.c */
int users_register(sys_data_t *sys);

#endif
