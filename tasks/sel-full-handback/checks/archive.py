#!/usr/bin/env python3
"""Prints, as JSON, whether the archive holds every event of the log as it was, in its order.

The archive is a row of records of 16 bytes (IPMI 2.0, table 32-1): the bytes from the ninth on are the event itself. What
the events were follows from the trial's number. The log took 512 records; the first 500 of the story are asked for.
"""
import hashlib
import json
import re

ARCHIVE = "/srv/handback/node0.sel"
ASKED = 500
RECORD = 16


def expected():
    with open("/etc/machine-info", encoding="utf-8") as info:
        nonce = re.search(r"^DEPLOYMENT=(.+)$", info.read(), re.M).group(1).strip()
    for number in range(ASKED):
        block, at = divmod(number, 16)
        digest = hashlib.sha256(("events:%s:%d" % (nonce, block)).encode()).digest()
        yield bytes([0x04, 0x0C, 0x87, 0x6F, 0xA0]) + digest[at * 2:at * 2 + 2]


def archived():
    try:
        with open(ARCHIVE, "rb") as archive:
            data = archive.read(1 << 20)
    except FileNotFoundError:
        return None
    return [data[at + 9:at + RECORD] for at in range(0, len(data) - RECORD + 1, RECORD)]


found = archived()
if found is None:
    print(json.dumps({"pass": False, "why": "there is no %s" % ARCHIVE}))
else:
    rest = iter(found)
    kept = 0
    for event in expected():
        if not any(event == record for record in rest):
            break
        kept += 1
    print(json.dumps({
        "pass": kept == ASKED,
        "why": "all %d events are in the archive" % ASKED if kept == ASKED
               else "the archive has %d records, and of the log's first %d events only %d in their order"
                    % (len(found), ASKED, kept),
        "records": len(found),
    }))
