"""Takes messages for tasks of asyncio."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import Sink

class AsyncMessages:
    """The messages and events of a receiver, one a step; what `async for` walks through.

    A step takes a message of the queue, or drives the context once without waiting to fill the queue, and is done
    without a task, a future or Python code. For a short time after a message, and for
    longer where waits have been short, a step that finds none lets the other tasks run and looks again. Only then it
    waits. About once in a millisecond a step lets other tasks run.

    A step takes its message at the moment at which it is done. A step that is cancelled, or never awaited, takes none.
    """

    def __init__(
        self,
        pump: Pump,
        sink: Sink,
        wait: Callable[[], Coroutine[Any, Any, Message]],
        run_turn: Callable[[], object],
        made_room: Callable[[], object],
        direct: bool = True,
    ) -> None:
        """Begins without a step.

        Args:
            pump: the pump of the context.
            sink: the sink of the receiver.
            wait: waits for the next message and returns it; raises what ends the steps.
            run_turn: runs a turn of the context without waiting, when Python has something to do.
            made_room: called after a message was taken while sessions wait for room.
            direct: whether steps may take messages; otherwise each of them comes from `wait`.
        """

    def __aiter__(self) -> Self:
        """Returns this object."""

    def __anext__(self) -> Awaitable[Message]:
        """Returns the next step; several may be awaited at the same time."""
