"""A work queue: three workers share the jobs, one of them is killed, and its jobs go to the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING

import ipcbus

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

JOBS = 300


def work(domain: str, crash_at: int) -> None:
    """Does jobs; with `crash_at` it dies in the middle of that one."""
    count = 0

    def on_job(message: ipcbus.Message) -> None:
        nonlocal count
        count += 1
        if count == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if message.flags & ipcbus.MessageFlag.UMQ_REASSIGNED:
            print(f"{message.data.decode()} comes from another worker", flush=True)

    with ipcbus.Context(domain=domain) as context:
        context.receiver("jobs", on_job, events=False, share="workers")
        threading.Event().wait()  # until it is terminated


def started(domain: str, crash_at: int = 0) -> BaseProcess:
    """Starts a worker."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(domain, crash_at))
    process.start()
    return process


def main() -> None:
    """Sends the jobs, and waits until each of them is done."""
    domain = f"work-queue-{os.getpid()}"
    workers = [started(domain, crash_at=5), started(domain), started(domain)]
    with ipcbus.Context(domain=domain) as context:
        jobs = context.source("jobs")
        jobs.wait_for_receivers(3, timeout=30)
        for number in range(JOBS):
            jobs.send(b"job %d" % number)
        jobs.flush()
        workers[0].join()  # it has killed itself
        while jobs.shares["workers"].pending:
            threading.Event().wait(0.01)
        done = jobs.shares["workers"]
        print(f"{done.consumed} jobs are done, {done.lost} lost, {done.members} workers are left")
        for worker in workers[1:]:
            worker.terminate()
            worker.join()  # the context removes what terminated workers leave in shared memory, when it closes


if __name__ == "__main__":
    main()
