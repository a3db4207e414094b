"""What takes the control messages of a kind in the driver's turn, without the steps of a control channel.

Most kinds of messages (`control_messages`, `gmd_messages`) begin with 16 bytes: kind, detail, zeros, topic, and a
number of 64 bits. A message of 16 bytes or more that fits one frame is handed to the taker of its kind when the driver
finds the frame: in compiled code, with the interpreter lock, and in the order of the frames. All other messages go
through the control channel.
"""

from collections.abc import Callable, Hashable

class FrameTaker:
    """Takes the messages of a kind.

    A compiled class may inherit from it. `takes` says whether the 16 bytes are as they have to be; if they are not, the
    message goes through the control channel, which counts it. `take` gets the peer, the 16 bytes, and a copy of the
    rest. It returns the number of messages and events that the application got. It may change what the driver may
    change, and must not raise an exception for what a peer sends.
    """

    def __init__(self, callback: Callable[[Hashable, bytes], int | None] | None = None) -> None:
        """Makes a taker.

        Args:
            callback: gets the peer and each whole message, in Python; returns the number of messages and events that
                the application got, None for 0.
        """
