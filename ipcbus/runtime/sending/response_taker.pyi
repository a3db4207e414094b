"""Takes the responses to the requests of a context from all its control channels."""

from collections.abc import Callable

from ipcbus.wire.control_front import FrameTaker

class ResponseTaker(FrameTaker):
    """Takes responses, in the driver's turn or from a control channel. Runs on the driver."""

    def __init__(self, deliver: Callable[[int, bytes | memoryview], int], count: Callable[[int], object]) -> None:
        """Makes a taker.

        Args:
            deliver: gets the number of the request and the bytes of each response; returns the number of messages that
                the application got.
            count: gets the number of messages that came from a control channel.
        """

    def respond(self, number: int, data: bytes | memoryview) -> None:
        """Delivers a response that came over a control channel."""
