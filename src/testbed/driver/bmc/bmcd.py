"""Supervises the virtual BMCs of one cluster: keeps an ipmi_sim a node running and carries out what they ask for.

Usage: bmcd.py CONFIG. The configuration is JSON, see config.ts. Ends when the configuration is gone, or by a signal; its
ipmi_sims end with it.
"""
import json
import os
import selectors
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bmc_process  # noqa: E402
import power_queue  # noqa: E402

GONE_CHECK_SEC = 2


class Supervisor:
    def __init__(self, path):
        self.path = path
        with open(path) as file:
            self.config = json.load(file)
        self.selector = selectors.DefaultSelector()
        self.queues = {}
        self.processes = []
        for bmc in self.config["bmcs"]:
            queue = power_queue.PowerQueue(bmc, self.watch)
            self.queues[bmc["name"]] = queue
            self.processes.append(bmc_process.BmcProcess(bmc, self.config, queue, self.watch))

    def watch(self, fd, called):
        """Calls when there is something to read; None: no longer."""
        if called is None:
            self.selector.unregister(fd)
        else:
            self.selector.register(fd, selectors.EVENT_READ, called)

    def run(self):
        checked = time.monotonic()
        while True:
            now = time.monotonic()
            if now - checked > GONE_CHECK_SEC:
                checked = now
                if not os.path.exists(self.path):
                    return
            waits = [process.tend(now) for process in self.processes]
            waits += [queue.tend(now) for queue in self.queues.values()]
            for key, _events in self.selector.select(min(waits + [GONE_CHECK_SEC])):
                key.data()

    def stop(self):
        for process in self.processes:
            process.stop()


def main():
    os.umask(0o077)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(sys.argv[1])
    try:
        supervisor.run()
    finally:
        supervisor.stop()


main()
