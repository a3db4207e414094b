"""Two processes: one sends greetings, the other one prints them."""

from __future__ import annotations

import multiprocessing
import os
import threading

import ipcbus


def receive(domain: str) -> None:
    """Prints what comes until "bye"."""
    done = threading.Event()

    def on_data(data: bytes) -> None:
        print(data.decode(), flush=True)
        if data == b"bye":
            done.set()

    with ipcbus.Context(domain=domain) as context:
        context.receiver("greetings", on_data=on_data)
        done.wait()


def main() -> None:
    """Starts the receiving process, and sends to it."""
    domain = f"hello-{os.getpid()}"  # of this run alone; programs leave it out, and meet in the domain "default"
    receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(domain,))
    receiver.start()
    with ipcbus.Context(domain=domain) as context:
        source = context.source("greetings")
        source.wait_for_receivers(1, timeout=30)  # the receiver misses nothing that is sent from here on
        for text in ("good morning", "good night", "bye"):
            source.send(text.encode())
    receiver.join()


if __name__ == "__main__":
    main()
