"""The short way of messages that are assigned to members of shares: out of a pipe, to the receiver. Compiled."""

from collections.abc import Callable, Hashable, Sized

from ipcbus.delivery.received_message import Origin
from ipcbus.delivery.share_gate import ShareGate
from ipcbus.wire.control_front import FrameTaker
from ipcbus.wire.resent_entries import ResentEntries

class WorkTaker(FrameTaker):
    """Takes the SHARE_WORK messages of a context. Runs on the driver."""

    def __init__(self, callback: Callable[[Hashable, bytes], None]) -> None:
        """Begins without members.

        Args:
            callback: gets the peer and each message that is not for a member that delivers it now.
        """

    def add(
        self,
        topic: int,
        instance: int,
        gate: ShareGate,
        origin: Origin,
        waiting: Sized,
        keep: Callable[[int, ResentEntries], object],
    ) -> None:
        """Delivers the work of a member from now on.

        Args:
            topic: the session's number of its topic.
            instance: the random number of the member.
            gate: delivers.
            origin: of the messages.
            waiting: what the member has to deliver first; while there is something, the callback gets its work.
            keep: gets the detail of a message and the entries for which the receiver has no room.
        """

    def remove(self, topic: int, instance: int) -> None:
        """Leaves the work of a member to the callback."""
