"""Traffic for a dashboard: sends messages, and prints what Prometheus gets about them from `ipcbus export`.

`python prometheus_grafana.py 600` goes on for 600 seconds. The README.md beside this file says how Grafana shows it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
import urllib.request

import ipcbus

RATE = 1000
"""Messages a second."""

_SAMPLE = re.compile(r'^(ipcbus_\w+)\{.*topic="readings".*\} (\S+)$', re.MULTILINE)


def receive(domain: str) -> None:
    """Receives until the source has ended."""
    with ipcbus.Context(domain=domain, name="display") as context:
        for message in context.receiver("readings"):
            if message.type is ipcbus.MessageType.EOS:
                break


def scraped(url: str) -> dict[str, float]:
    """Returns what the exporter says about the topic, as Prometheus would get it."""
    with urllib.request.urlopen(url, timeout=30) as response:
        return {name: float(value) for name, value in _SAMPLE.findall(response.read().decode())}


def main() -> None:
    """Starts a receiving process and the exporter, sends, and looks at the metrics."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
    domain = f"prometheus-grafana-{os.getpid()}"
    receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(domain,))
    receiver.start()
    export = [sys.executable, "-m", "ipcbus_tools", "export", "--domain", domain, "--port", "0", "--json"]
    with subprocess.Popen(export, stdout=subprocess.PIPE) as exporter, ipcbus.Context(domain=domain) as context:
        assert exporter.stdout is not None
        url = json.loads(exporter.stdout.readline())["url"]
        source = context.source("readings")
        source.wait_for_receivers(1, timeout=30)
        count = max(1, int(seconds * RATE))
        for number in range(count):
            source.send(b"reading %d" % number)
            time.sleep(1 / RATE)
        source.flush()
        while (figures := scraped(url))["ipcbus_receiver_lbm_msgs_rcved_total"] < count:
            time.sleep(0.1)
        for what in ("source_lbm_msgs_sent", "receiver_lbm_msgs_rcved", "receiver_lost"):
            print(f"ipcbus_{what}_total {figures[f'ipcbus_{what}_total']:.0f}")
        exporter.terminate()
    receiver.join()


if __name__ == "__main__":
    main()
