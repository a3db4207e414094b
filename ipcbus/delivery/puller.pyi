"""What a receiver does for a thread that pulls."""

from collections.abc import Callable, Iterator
from typing import Any, overload

from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import Sink

class Puller:
    """The compiled part of a receiver."""

    # It takes messages from the queue of the receiver, and drives the context to fill it. When Python has something to
    # do, it calls these methods of the receiver: `_take_slowly`, `_take_many_slowly` and `_take_into_slowly`, with the
    # seconds that are left, or with the timeout when Python has to check it and the receiver; `_take_acknowledging` and
    # so on where `acknowledges` is set; `_check_limit` and `_check_timeout` with an odd limit or timeout.

    _error: BaseException | None
    """An error that the next call has to raise; Python does that."""

    def __init__(
        self,
        pump: Pump,
        sink: Sink,
        rows_lock: Any,  # noqa: ANN401 - a lock of threads
        shorten: Callable[[BaseException], None],
        acknowledges: bool = False,
    ) -> None:
        """Begins without an error.

        Args:
            pump: the pump of the context.
            sink: the sink of the receiver.
            rows_lock: held by the thread whose array gets messages.
            shorten: takes the frames of the package out of the traceback of a KeyboardInterrupt.
            acknowledges: each call acknowledges the guaranteed messages of those before it, so that Python takes all.
        """

    @overload
    def receive(self, timeout: None = None) -> Message: ...
    @overload
    def receive(self, timeout: float | None) -> Message | None:
        """Returns the next message or event.

        Args:
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The message with its own copy of the bytes, or None when the time ran out.

        Raises:
            ClosedError: the receiver is closed, and its queue is empty.
            IpcBusError: the receiver has a callback, or the caller is inside a callback.
            WrongProcess: the context was made before a fork, in the parent.
            TypeError, ValueError: `timeout` is not a number, or NaN.
        """

    def receive_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Waits for a message or event, and returns it with those that are there already.

        Args:
            limit: the most messages and events to return; 0 or more.
            timeout: seconds to wait for the first; 0, or less, does not wait, None waits for ever.

        Returns:
            The messages and events in their order; an empty list when the time ran out.

        Raises:
            TypeError, ValueError: `limit` is not a whole number, or negative; otherwise as in `receive`.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """

    def receive_into(self, array: Any, timeout: float | None = None) -> int:  # noqa: ANN401 - any writable buffer
        """Writes messages of equal length straight into the rows of an array.

        The call waits for the first message, then takes those that are there already. It stops before an event, before
        a message of another length, and before a message with headers, which do not fit in a row; the next `receive`
        returns that message or event.

        Args:
            array: writable and C-contiguous: 2-D of uint8, or 1-D with items of the messages' length in bytes.
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The number of rows that were filled; 0 when the time ran out or an event is next.

        Raises:
            ValueError: the next message has another length, or has headers.
            TypeError: `array` is not such an array.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """

    def __iter__(self) -> Iterator[Message]:
        """Yields messages and events until the receiver is closed."""

    def _wait(self, timeout: float | None) -> float:
        """Waits until the queue has a message or event.

        Returns:
            A number below 0 when the wait is over; the seconds that are left when Python has to run a turn, which is
            NaN when Python has to check the receiver and the timeout.
        """
