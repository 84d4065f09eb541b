"""Writes tests/ (JSON on standard input) to /tests, runs /tests/test.sh and prints its reward files as JSON."""
import base64
import json
import os
import shutil
import subprocess
import sys

REWARDS = "/logs/verifier"


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return None


def main():
    before = {path: os.path.exists(path) for path in ("/tests", "/logs")}
    shutil.rmtree("/tests", ignore_errors=True)
    # A reward that is already there is none: the agent may have written it.
    shutil.rmtree(REWARDS, ignore_errors=True)
    os.makedirs(REWARDS)
    for packed in json.load(sys.stdin):
        path = os.path.join("/tests", packed["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(packed["base64"]))
        os.chmod(path, 0o755 if packed["executable"] else 0o644)
    try:
        done = subprocess.run(
            ["bash", "/tests/test.sh"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=int(sys.argv[1]) / 1000 * 0.9,
            check=False,
        )
        exit_code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        exit_code, output = 124, (late.stdout or b"") + b"\n[not ended in time]"
    answer = {
        "exitCode": exit_code,
        "rewardText": text(REWARDS + "/reward.txt"),
        "rewardJson": text(REWARDS + "/reward.json"),
        "output": output[-16384:].decode("utf-8", "replace"),
    }
    for path, existed in before.items():
        if not existed:
            shutil.rmtree(path, ignore_errors=True)
    print(json.dumps(answer))


main()
