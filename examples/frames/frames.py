"""Camera frames go to a second process, made in the ring and looked at in the ring; both processes measure."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import numpy as np

import ipcbus

SHAPE = (1080, 1920, 3)
BYTES = int(np.prod(SHAPE))
FRAMES = 100


def look(domain: str) -> None:
    """Looks at each frame where it lies, and prints how bright they were and how long they took."""
    brightness: list[float] = []
    latencies: list[int] = []
    done = threading.Event()

    def on_message(message: ipcbus.Message) -> None:
        if message.type is not ipcbus.MessageType.DATA:
            return
        frame = message.array(SHAPE, np.uint8)  # no copy; read-only
        brightness.append(float(frame[::8, ::8].mean()))
        latencies.append(time.time_ns() - message.send_time_ns)  # since the begin of the block that made it
        if len(brightness) == FRAMES:
            done.set()

    with ipcbus.Context(domain=domain) as context:
        context.receiver("camera", on_message)
        done.wait()
    print(f"{len(brightness)} frames of {BYTES} bytes, brightness from {min(brightness):.0f} to {max(brightness):.0f}")
    print(f"median latency of a frame, with the time in which it was made: {np.median(latencies) / 1e6:.2f} ms")


def main() -> None:
    """Starts the receiving process, and makes frames for it."""
    domain = f"frames-{os.getpid()}"
    receiver = multiprocessing.get_context("spawn").Process(target=look, args=(domain,))
    receiver.start()
    with ipcbus.Context(domain=domain) as context:
        source = context.source("camera", message_max=BYTES)  # chooses the transport, and a ring for 4 frames or more
        source.wait_for_receivers(1, timeout=30)
        begin = time.perf_counter()
        for number in range(FRAMES):
            with source.acquire_array(SHAPE, np.uint8) as frame:  # lies in the ring
                frame[:] = number * 2
        rate = FRAMES / (time.perf_counter() - begin)
    receiver.join()  # before the print, because the receiving process prints too
    print(f"{rate:.0f} frames/s")


if __name__ == "__main__":
    main()
