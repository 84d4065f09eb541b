#!/usr/bin/python3 -ISB
"""Stands in for ipmitool over lanplus and for the BMC behind it, and misbehaves as its state file says.

fake-ipmitool.py STATE [ipmitool's arguments]: knows raw, exec and the commands that tests use; prints what ipmitool 1.8.19
prints. The same suite runs against it and against ipmitool with ipmi_sim.
"""
import json
import os
import sys

NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session"
CODES = {
    0xC0: "Node busy",
    0xC1: "Invalid command",
    0x80: "Unknown (0x80)",
    0xCB: "Requested sensor, data, or record not found",
    0xCC: "Invalid data field in request",
    0xD2: "BMC initialization in progress",
    0xD5: "Command not supported in present state",
}
FLAGS = {"-H", "-p", "-U", "-f", "-C", "-I", "-N", "-R"}


class Refused(Exception):
    """A completion code."""


class Lost(Exception):
    """The request was carried out and its reply lost."""


def say(text):
    print(text, file=sys.stderr)


def take(state, quirk):
    """One of a counted misbehaviour, if any is left."""
    left = state["quirks"].get(quirk, 0)
    if left > 0:
        state["quirks"][quirk] = left - 1
    return left > 0


def has(state, quirk):
    return bool(state["quirks"].get(quirk))


def open_session(state, options):
    """None, or the lines that say why there is no session."""
    state["sessions"] += 1
    if has(state, "silent"):
        lines = ["Get Auth Capabilities error", "Error issuing Get Channel Authentication Capabilities request"]
        return (lines if options["verbose"] else []) + [NO_SESSION]
    if take(state, "full"):
        return ["Error in open session response message : insufficient resources for session\n", NO_SESSION]
    if int(options["-C"]) not in state["suites"]:
        return ["Error in open session response message : invalid authentication algorithm\n", NO_SESSION]
    if take(state, "noSession"):
        return ["> Error: no response from RAKP 1 message", NO_SESSION]
    with open(options["-f"], encoding="utf-8") as file:
        password = file.readline().rstrip("\r\n")[:20]
    if options["-U"] != state["username"]:
        line = "RAKP 2 message indicates an error : unauthorized name"
    elif password != state["password"]:
        line = "> RAKP 2 HMAC is invalid"
    else:
        return None
    state["refused"] += 1
    return ([line] if options["verbose"] else []) + [NO_SESSION]


def boots(state):
    """The firmware looks at the boot flags, and a one-shot override is gone."""
    flags = state["bootFlags"]
    if flags[0] & 0x80 and not flags[0] & 0x40 and not has(state, "overrideSticks"):
        state["bootFlags"] = [0, 0, 0, 0, 0]


def chassis_status(state):
    if state["quirks"].get("goingOff", 0) > 0:
        state["quirks"]["goingOff"] -= 1
        if state["quirks"]["goingOff"] == 0:
            state["power"] = 0
        return [0x01, 0, 0]
    return [state["power"], 0, 0]


def chassis_control(state, what):
    state["acts"].append(what)
    if what == 0x00:
        if has(state, "slowOff"):
            state["quirks"]["goingOff"] = state["quirks"]["slowOff"]
        else:
            state["power"] = 0
    elif what == 0x01:
        # Swallowed while the machine is still stopping, which its status need not show any more.
        is_stopping = state["quirks"].get("goingOff", 0) > 0 or take(state, "swallowOn")
        if not is_stopping and not has(state, "deadSupply"):
            if not state["power"]:
                boots(state)
            state["power"] = 1
    elif what == 0x02:
        if not state["power"]:
            raise Refused(0xD5)
        boots(state)
    elif what == 0x03:
        if state["power"]:
            boots(state)
    elif what == 0x05:
        if not has(state, "deafSystem"):
            state["power"] = 0
    else:
        raise Refused(0xCC)
    return []


def set_boot_option(state, data):
    number = data[0] & 0x7F
    if number == 3 and not has(state, "noClearing"):
        state["clearing"] = data[1]
    elif number == 5:
        flags = data[1:6]
        if has(state, "keepsLastFlag") and flags[0] & 0x60 == 0x60:
            flags[0] &= ~0x40
        state["bootFlags"], state["bootFlagsAtMs"] = flags, state["nowMs"]
    else:
        raise Refused(0x80)
    return []


def get_boot_option(state, data):
    number = data[0] & 0x7F
    if number == 3 and not has(state, "noClearing"):
        return [1, 3, state["clearing"]]
    if number == 5:
        isLate = state["nowMs"] - state["bootFlagsAtMs"] > 60000
        if isLate and not state["clearing"] & 0x08:
            state["bootFlags"][0] &= 0x7F
        return [1, 5, *state["bootFlags"]]
    raise Refused(0x80)


def user_access(state, data):
    user = state["users"].get(str(data[1]))
    access = 0x00 if user is None else user["access"]
    return [len(state["users"]) + 10, 2 | (0 if user is None else user["status"] << 6), 0, access]


def user_name(state, data):
    user = state["users"].get(str(data[0]))
    if user is None:
        raise Refused(0xCC)
    return list(user["name"].encode().ljust(16, b"\0"))


def sel_info(state):
    free = (state["selSize"] - len(state["sel"])) * 16
    overflow = 0x80 if state["overflow"] else 0
    return [0x51, len(state["sel"]) & 255, len(state["sel"]) >> 8, free & 255, free >> 8, *[0] * 8, overflow | 0x0A]


def add_sel(state, data):
    if len(state["sel"]) >= state["selSize"]:
        state["overflow"] = True
        raise Refused(0xC4)
    number = len(state["sel"]) + 1
    stamp = list((state["nowMs"] // 1000).to_bytes(4, "little"))
    state["sel"].append(bytes([number & 255, number >> 8, data[2], *stamp, *data[7:16]]).hex())
    return [number & 255, number >> 8]


def request(state, netfn, command, data):
    if take(state, "notReady"):
        raise Refused(0xD2)
    known = {
        (0x00, 0x01): lambda: chassis_status(state),
        (0x00, 0x02): lambda: chassis_control(state, data[0] & 0x0F),
        (0x00, 0x08): lambda: set_boot_option(state, data),
        (0x00, 0x09): lambda: get_boot_option(state, data),
        (0x06, 0x01): lambda: [0x00, 0x03, 0x09, 0x08, 0x02, 0x9F, 0x91, 0x12, 0x00, 0x02, 0x0F, 0, 0, 0, 0],
        (0x06, 0x25): lambda: state["watchdog"],
        (0x06, 0x37): lambda: list(bytes.fromhex(state["guid"])),
        (0x06, 0x44): lambda: user_access(state, data),
        (0x06, 0x46): lambda: user_name(state, data),
        (0x0A, 0x40): lambda: sel_info(state),
        (0x0A, 0x44): lambda: add_sel(state, data),
    }.get((netfn, command))
    if known is None:
        raise Refused(0xC1)
    reply = known()
    if (netfn, command) in ((0x00, 0x02), (0x00, 0x08)) and take(state, "loseReply"):
        raise Lost
    return reply


def raw(state, words):
    netfn, command, *data = (int(word, 0) for word in words)
    where = f"channel=0x0 netfn=0x{netfn:x} lun=0x0 cmd=0x{command:x}"
    try:
        reply = request(state, netfn, command, data)
    except Refused as refused:
        code = refused.args[0]
        say(f"Unable to send RAW command ({where} rsp=0x{code:x}): {CODES.get(code, 'Unspecified error')}")
        return 1
    except Lost:
        say(f"Unable to send RAW command ({where})")
        return 1
    print("".join(f" {byte:02x}" for byte in reply))
    return 0


def sel_writeraw(state, path):
    if not state["sel"]:
        say("SEL has no entries")
        return 0
    with open(path, "wb") as file:
        file.write(bytes.fromhex("".join(state["sel"])))
    for number, _record in enumerate(state["sel"], 1):
        print(f"{number:x}, Pre-Init ,0000000000,Temperature #0x30,Upper Critical going high,Asserted")
    return 0


def command(state, words):
    if words[0] == "raw":
        return raw(state, words[1:])
    if words[0] == "echo":
        print(*words[1:], "")
        return 0
    if words[:2] == ["sel", "writeraw"]:
        return sel_writeraw(state, words[2])
    if words[:2] == ["mc", "guid"]:
        print(f"System GUID   : {state['guid']}")
        return 0
    if words[0] == "exec":
        with open(words[1], encoding="utf-8") as file:
            return max([command(state, line.split()) for line in file])
    say(f"Invalid command: {words[0]}")
    return 1


def main():
    path, *words = sys.argv[1:]
    options = {"verbose": False}
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in FLAGS:
            options[flag] = words.pop(0)
        elif flag == "-v":
            options["verbose"] = True
    with open(path, encoding="utf-8") as file:
        state = json.load(file)
    why = open_session(state, options)
    if why is None:
        status = command(state, words)
    else:
        status = 1
        for line in why:
            say(line)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.rename(path + ".new", path)
    return status


sys.exit(main())
