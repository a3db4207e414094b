"""Delivers the messages that a source has sent again: of a late join, or of off-transport recovery."""

from ipcbus.delivery.demux import Controller, Demux

class RetransmittedFeed:
    """Delivers the entries of one retransmission after the other to a topic's receivers.

    Messages that are the next missing ones go to the sinks in compiled code; all others go to the controller
    (`take_retransmitted`, `give_up_missing`). While a receiver that pulls has no room, it stops and keeps its place.
    """

    reached: int
    """The numbers of the retransmission below this one were delivered, put aside or given up."""
    messages: int
    """The messages, and fragments of messages, that it took so far."""

    def __init__(self, demux: Demux, controller: Controller) -> None:
        """Makes a feed without a retransmission.

        Args:
            demux: of the session; it counts the messages.
            controller: of the topic, or of one later receiver of it; a `DeliveryController`.
        """

    @property
    def busy(self) -> bool:
        """Whether a retransmission is not finished."""

    def begin(self, first: int, last: int, entries: bytes, flag: int, *, epoch: bool = False) -> None:
        """Takes a retransmission; call `run` next.

        Args:
            first: its first number.
            last: its last number; what the source still has of `first` to `last` is in `entries`.
            entries: messages behind `RETAINED_HEADER`s, ascending (`wire.wire_layout`); they are checked here.
            flag: the bit of `MessageFlag` that its messages get.
            epoch: whether send times in entries are ns since the epoch (over UDP) instead of clock ticks.

        Raises:
            ValueError: the previous retransmission is not finished.
        """

    def run(self, now_ns: int) -> bool:
        """Delivers what it can.

        Returns:
            Whether the retransmission is finished. It is not while a receiver has no room (call again when it has), nor
            after a callback that paused the session. When its bytes contradict themselves it is finished, `reached`
            stands where they do, and the numbers from there on stay missing.
        """
