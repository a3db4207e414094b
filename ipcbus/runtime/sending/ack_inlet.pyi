"""The short way of acknowledgements that come in order: out of a pipe, into the state of their source. Compiled."""

from collections.abc import Callable, Hashable

from ipcbus.gmd.copy_area import CopyArea
from ipcbus.gmd.ordered_acks import OrderedAcks
from ipcbus.topic.message_saver import MessageSaver
from ipcbus.wire.control_front import FrameTaker

class AckInlet(FrameTaker):
    """Takes the GMD_ACK messages of one session. Runs on the driver, but for `add` and `remove`."""

    def __init__(self, callback: Callable[[Hashable, bytes], None]) -> None:
        """Begins without sources.

        Args:
            callback: gets the peer and each message that does not come in order.
        """

    def add(
        self, topic: int, saver: MessageSaver, area: CopyArea, acks: OrderedAcks, events: Callable[[], object]
    ) -> None:
        """Takes acknowledgements for a source from now on.

        Args:
            topic: the session's number of its topic.
            saver: has the lock of the source.
            area: its area.
            acks: its state.
            events: called when deliveries are to be reported as complete.
        """

    def remove(self, topic: int) -> None:
        """Leaves the acknowledgements of a topic to the callback."""
