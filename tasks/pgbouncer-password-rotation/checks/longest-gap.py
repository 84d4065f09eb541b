#!/usr/bin/env python3
"""Prints, as JSON, the longest time in which the applications got no acknowledgement, up to this moment.

The one argument is the longest that is allowed, in seconds.
"""
import json
import sys
import time

ALLOWED = float(sys.argv[1])
with open("/var/lib/orders-client/acknowledged.log", encoding="ascii") as log:
    times = [float(line.split(" ")[2]) for line in log if line.endswith("\n")]

now = time.time()
gaps = [later - earlier for earlier, later in zip(times, times[1:] + [now])]
longest = max(gaps) if gaps else None
print(json.dumps({
    "pass": longest is not None and longest <= ALLOWED,
    "why": "no order was ever acknowledged" if longest is None
           else "the longest time without an acknowledged order was %.1f s (%g s are allowed)" % (longest, ALLOWED),
    "acknowledged": len(times),
}))
