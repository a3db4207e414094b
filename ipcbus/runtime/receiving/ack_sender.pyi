"""The short way of acknowledgements that come in order: recorded, then put into the pipe to the source. Compiled."""

from ipcbus.delivery.gmd_gate import ShortWay
from ipcbus.gmd.acknowledged_floor import AcknowledgedFloor
from ipcbus.transport.ring.response_frames import ResponseWriter

class AckSender(ShortWay):
    """Records the acknowledgements of one gate, and sends them. Runs on the driver."""

    def __init__(self, topic: int, instance: int) -> None:
        """Takes nothing until `use`.

        Args:
            topic: the session's number of the topic.
            instance: the random number of the receiver.
        """

    def use(self, floor: AcknowledgedFloor | None, incarnation: int, writer: ResponseWriter | None) -> None:
        """Sets the way from now on.

        Args:
            floor: takes and records the acknowledgements; None to take none.
            incarnation: of the sender.
            writer: puts them into the pipe to the source; None to take none.
        """
