"""Messages that a thread which pulls looks at in the ring (`Receiver.lease`)."""

from ipcbus.delivery.received_message import Message
from ringbuf.ring import RingReader

class RecordHolder:
    """What reads a ring, and holds records back from its source while messages in them are leased.

    They hold back at most half of the ring. When the reader is further than that, the oldest message gets memory of
    its own, at the same address where an application looks at it.
    """

    # Any thread may release a message: the position of the slot only grows.

    ring: RingReader
    wakes_writer: bool
    detached: bool
    """Whether the slot was given back, so that nothing is read or shown any more."""

class LeasedMessage(Message):
    """A message whose bytes end with the block of its lease."""

    def end(self) -> bool:
        """Ends the lease: no view shows the ring any more, and the message has no bytes.

        Returns:
            Whether the source waits for an event, which the context has to send.
        """

def leased(message: Message) -> LeasedMessage | None:
    """Returns a message whose bytes can be ended: this one, or one that shares its bytes.

    None for events, and for messages that are acknowledged, which stay as they are.
    """
