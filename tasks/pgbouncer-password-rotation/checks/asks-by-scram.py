#!/usr/bin/env python3
"""Prints, as JSON, how the pooler asks the role for its password: the first message of PostgreSQL's protocol answers.

The arguments are host, port, role and database. Authentication requests are 10 for SASL (SCRAM), 5 for md5, 3 for the
password in clear and 0 for none at all (PostgreSQL manual, "Message Formats").
"""
import json
import socket
import struct
import sys

NAMES = {0: "nothing at all", 3: "the password in clear", 5: "md5", 10: "SASL"}
host, port, role, database = sys.argv[1:5]


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the pooler ended the connection")
        data += more
    return data


body = struct.pack("!i", 196608) + b"".join(
    word.encode() + b"\0" for word in ("user", role, "database", database)) + b"\0"
with socket.create_connection((host, int(port)), timeout=8) as connection:
    connection.sendall(struct.pack("!i", len(body) + 4) + body)
    kind = receive(connection, 1)
    rest = receive(connection, struct.unpack("!i", receive(connection, 4))[0] - 4)

if kind == b"R":
    code = struct.unpack("!i", rest[:4])[0]
    asked = NAMES.get(code, "request %d" % code)
    scram = code == 10 and b"SCRAM-SHA-256\0" in rest
else:
    asked, scram = "no authentication request but %r" % rest[:200], False
print(json.dumps({"pass": scram, "why": "the pooler asks for %s" % ("SCRAM-SHA-256" if scram else asked)}))
