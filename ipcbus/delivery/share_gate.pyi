"""The gate between the delivery controller of a topic and a member of a share, in compiled code."""

from ipcbus.delivery.gmd_gate import GmdGate
from ipcbus.delivery.received_message import Message, Origin
from ipcbus.wire.resent_entries import ResentEntries

class ShareGate(GmdGate):
    """Keeps the messages of a session from a member, gives it those that are assigned to it, and takes their ends.

    Events of the session go to the keeper. Acknowledgements and refusals are those of a `GmdGate`.
    """

    def take(self, message: Message) -> None:
        """Drops a message of the controller, and gives an event to the keeper."""

    def deliver_work(
        self, entries: ResentEntries, origin: Origin, *, reassigned: bool, requests: bool, without_limit: bool = False
    ) -> int:
        """Gives messages that are assigned to the receiver to it, while it has room; returns how many.

        Args:
            entries: it takes the messages from them.
            origin: of the messages.
            reassigned: whether they were assigned before.
            requests: whether they are requests.
            without_limit: whether the receiver gets them also without room.
        """
