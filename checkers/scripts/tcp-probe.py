"""Connects once to a TCP port and prints what came of it as JSON."""
import errno
import json
import socket
import sys
import time

request = json.loads(sys.argv[1])
address = request["address"]
begun = time.monotonic()
answer = {"address": address, "open": False, "error": None, "banner": None, "durationMs": None}
words = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to the network",
    errno.ETIMEDOUT: "timeout",
}
try:
    with socket.create_connection((address, request["port"]), timeout=request["timeoutMs"] / 1000) as stream:
        answer["open"] = True
        answer["durationMs"] = round((time.monotonic() - begun) * 1000, 1)
        if request["banner"]:
            try:
                answer["banner"] = stream.recv(256).decode("utf-8", "replace")
            except OSError:
                answer["banner"] = ""
except socket.timeout:
    answer["error"] = "timeout"
except OSError as error:
    answer["error"] = words.get(error.errno, str(error))
print(json.dumps(answer))
