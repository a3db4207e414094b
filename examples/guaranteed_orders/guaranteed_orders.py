"""Orders that survive a crash: the settlement is killed in the middle, and the next one books each order once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import ipcbus

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

ORDERS = 10


def settle(domain: str, folder: str, crash_at: int) -> None:
    """Books orders; with `crash_at` it dies behind that booking, before the order is acknowledged."""
    database = sqlite3.connect(f"{folder}/settled.db", check_same_thread=False)
    database.execute("CREATE TABLE IF NOT EXISTS settled (number INTEGER PRIMARY KEY, text TEXT)")
    done = threading.Event()

    def on_order(message: ipcbus.Message) -> None:
        number = message.gmd_sequence_number
        with database:  # number and booking in one transaction: an order that comes again is booked once
            row = (number, message.data.decode())
            is_new = database.execute("INSERT OR IGNORE INTO settled VALUES (?, ?)", row).rowcount
        print(f"order {number}" if is_new else f"order {number} came again, and is booked already", flush=True)
        if number == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == ORDERS:
            done.set()

    with ipcbus.Context(domain=domain) as context:
        area = f"{folder}/gmd"
        context.receiver("orders", on_order, events=False, gmd_name="settlement", ipc_gmd_directory=area)
        done.wait()  # the order is acknowledged when `on_order` has returned, at the latest by the close
    database.close()


def started(domain: str, folder: str, crash_at: int) -> BaseProcess:
    """Starts a settlement."""
    process = multiprocessing.get_context("spawn").Process(target=settle, args=(domain, folder, crash_at))
    process.start()
    return process


def main() -> None:
    """Sends the orders, and starts the settlement again when it has died."""
    domain = f"guaranteed-orders-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, ipcbus.Context(domain=domain) as context:
        area = f"{folder}/gmd"
        orders = context.source("orders", delivery_mode="all", gmd_name="gateway", ipc_gmd_directory=area)
        settlement = started(domain, folder, crash_at=4)
        orders.wait_for_receivers(1, timeout=30)
        for number in range(1, ORDERS + 1):
            orders.send(b"buy %d" % number)
        orders.flush()
        settlement.join()
        print(f"the settlement was killed, {orders.gmd_num_pending} orders are pending", flush=True)
        settlement = started(domain, folder, crash_at=0)
        settlement.join()
        with contextlib.closing(sqlite3.connect(Path(folder) / "settled.db")) as database:
            print(f"{database.execute('SELECT count(*) FROM settled').fetchone()[0]} orders are booked")


if __name__ == "__main__":
    main()
