"""The gate between the delivery controller of a topic and a named receiver, in compiled code."""

from ipcbus.delivery.demux import Controller
from ipcbus.delivery.pump import PassEnd, Pump
from ipcbus.delivery.received_message import Message, Origin
from ipcbus.delivery.sink import Sink
from ipcbus.delivery.slow_path import Failures, GateKeeper
from ipcbus.wire.resent_entries import ResentEntries

class ShortWay:
    """Takes acknowledgements that come in order, in compiled code; a subclass does it."""

class GmdGate(PassEnd):
    """Lets the messages of a source topic pass to a named receiver, and takes their acknowledgements.

    While it is open, the guaranteed message with exactly `next_number` passes, and so does every message that is not
    guaranteed. All else goes to the keeper. Acknowledgements come from any thread.
    """

    sink: Sink
    """Stands in the controller in the place of the receiver's sink."""
    target: Sink
    """The receiver's sink."""
    is_open: bool
    """Whether messages may pass."""
    next_number: int
    """The number that may pass next; counted up while the gate is open."""
    delivered: int
    """Guaranteed messages that the receiver got, also those that it got again."""
    short_way: ShortWay | None
    """Gets a run of acknowledgements at the end of a pass, before the keeper does; None at first."""

    def __init__(
        self,
        target: Sink,
        controller: Controller | None,
        keeper: GateKeeper,
        failures: Failures,
        *,
        auto_ack: bool = True,
        acks_at_the_end: bool = False,
        unrecorded_max: int = 64,
        pump: Pump | None = None,
    ) -> None:
        """Makes a gate that is not open.

        Args:
            target: the receiver's sink.
            controller: of the topic; None if its messages may have other receivers.
            keeper: does what is not simply the next message.
            failures: takes the exceptions of callbacks.
            auto_ack: whether a message is acknowledged without a call.
            acks_at_the_end: whether that is when nothing refers to it any more, and not when the callback has returned.
            unrecorded_max: the most acknowledgements that the area has not recorded.
            pump: delivers the messages; without it, all acknowledgements go to the keeper.
        """

    def take(self, message: Message) -> None:
        """Takes a message or event of the controller."""

    def put(self, sink: Sink, message: Message) -> None:
        """Takes a message or event of the controller, for a receiver that keeps messages (`EventStore`)."""

    def is_full(self) -> bool:
        """Returns whether the receiver has no room (`EventStore`)."""

    def deliver(self, message: Message) -> None:
        """Gives a message or event to the receiver, whatever its number."""

    def deliver_resent(
        self, entries: ResentEntries, origin: Origin, opening: int, *, without_limit: bool = False
    ) -> int:
        """Gives messages that came again to the receiver, while it has room; returns how many.

        Args:
            entries: it takes the messages from them.
            origin: of the messages.
            opening: messages of another opening of the sender's area have no topic numbers in this session.
            without_limit: whether the receiver gets them also without room.
        """

    def withdraw(self, first: int, last: int) -> None:
        """Removes messages that wait in the receiver's queue, because their source has deleted them."""

    def take_acks(self) -> list[tuple[int, int]]:
        """Returns the numbers that were acknowledged since the last call, as ranges."""

    def note_recorded(self) -> None:
        """Notes that the area has recorded all acknowledgements that were taken."""

    def take_refusals(self) -> list[tuple[Message, int | None]]:
        """Returns the messages that were refused since the last call, each with a delay in ns; None for a backoff."""

    def acknowledge(self, number: int) -> None:
        """Takes the acknowledgement of a message; any thread may call this. Has room made for it before."""

    def make_room(self, count: int) -> None:
        """Waits until the area has recorded so many that this number of messages may be unrecorded beside the rest.

        The calling thread records them, and waits for the thread that drives the context to let it do that.
        """

    def refuse(self, message: Message, delay_ns: int | None) -> None:
        """Takes the refusal of a message; any thread may call this."""

    def dispatched(self, message: Message, failed: bool) -> None:
        """Notes that an event queue has called back with a message, and whether the callback raised.

        Has room made for the message that is dispatched next.
        """

    def acknowledge_rows(self) -> None:
        """Acknowledges the messages that went into rows of an array; any thread may call this."""

class AckAtTheEnd:
    """Acknowledges a message when nothing refers to it any more."""

    def cancel(self) -> None:
        """Leaves the message alone: it is acknowledged or refused."""
