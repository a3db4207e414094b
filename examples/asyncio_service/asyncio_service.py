"""A service in asyncio that answers requests, and a client that asks many things at once."""

from __future__ import annotations

import asyncio
import os

import ipcbus

PRICES = {b"AAPL": b"191.24", b"MSFT": b"402.56"}


async def serve(receiver: ipcbus.Receiver) -> None:
    """Answers each request."""
    async for message in receiver:
        if message.type is ipcbus.MessageType.REQUEST:
            await asyncio.sleep(0.001)  # as if it asked a database
            message.respond(PRICES.get(message.data, b"unknown"))


async def main() -> None:
    """Runs the service and the client; usually each is a process of its own."""
    domain = f"asyncio-service-{os.getpid()}"
    with ipcbus.Context(domain=domain, name="service") as serving, ipcbus.Context(domain=domain) as asking:
        service = asyncio.create_task(serve(serving.receiver("prices", events=False)))
        prices = asking.source("prices")
        names = [b"AAPL", b"MSFT", b"NONE"] * 10
        answers = await asyncio.gather(*(prices.arequest(name, timeout=30) for name in names))
        for name, answer in list(zip(names, answers, strict=True))[:3]:
            print(f"{name.decode()}: {answer.data.decode()}")
        print(f"{len(answers)} answers")
        service.cancel()


if __name__ == "__main__":
    asyncio.run(main())
