"""Messages of the session over the network that was read last, without a turn of Python for each read."""

from collections.abc import Callable

from ipcbus.delivery.pump import Pump

def deliver_fetched(pump: Pump, fetch: Callable[[], int], longest_ns: int, once: bool) -> int:
    """Delivers what comes, as long as each read brings datagrams of this session and nothing else.

    Args:
        pump: the pump of the context; the calling thread drives it.
        fetch: reads them (`UdpReceiver.first_fetch`).
        longest_ns: the time in ns after which it returns.
        once: whether it returns after the first delivery.

    Returns:
        The number of messages and events delivered.
    """
