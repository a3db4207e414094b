"""Rows that LBT-RU and LBT-RM share, with a name and a default for each transport."""

from __future__ import annotations

from typing import Final

from ipcbus.config.option_values import Option
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_ID, MAX_WINDOW, MIB, interval

ADDITION: Final = " An addition to Ultra Messaging."
_MAX_BITS: Final = 10**12
DATA_RATE: Final = 10_000_000
"""Default limit over a network in bit/s, as in Ultra Messaging."""
RETRANSMIT_RATE: Final = 5_000_000
_AUTOMATIC: Final = (
    "0: {} over a network, as in Ultra Messaging, and no limit on the loopback interface, where there is no network to "
    "protect; any other value holds on all interfaces."
)
_MAX_BUFFER: Final = 2**30


def port(default: int, meaning: str) -> Option[int]:
    """Returns a row of a UDP port; 0 is valid only if it is the default, and lets the pool choose."""
    return Option(default=default, minimum=min(default, 1), maximum=MAX_ID, meaning=meaning)


def limit(default: int, unit: str, meaning: str) -> Option[int]:
    """Returns a row of a rate without a limit at 0."""
    return Option(
        default=default, unit=unit, minimum=0, maximum=_MAX_BITS, special_zero=True, meaning=f"{meaning} 0: no limit."
    )


def _rate(meaning: str, automatic: int, note: str = "") -> Option[int]:
    """Returns a row of a rate whose 0 depends on the destination of a session."""
    return Option(
        default=0,
        unit="bit/s",
        minimum=0,
        maximum=_MAX_BITS,
        special_zero=True,
        meaning=f"{meaning} {_AUTOMATIC.format(automatic)}{note}",
    )


def buffer(default: int, meaning: str) -> Option[int]:
    """Returns a row of a socket's buffer."""
    return Option(
        default=default,
        unit="bytes",
        minimum=0,
        maximum=_MAX_BUFFER,
        special_zero=True,
        meaning=f"{meaning} 0: the system's default. When the system grants less, ipcbus logs a warning with the "
        "kernel setting to change.",
    )


def data_rate_limit(transport: str, note: str = "") -> Option[int]:
    """Returns a row of a source's rate limit."""
    return _rate(
        f"Highest rate at which an {transport} session sends new datagrams; further datagrams wait for the next "
        "interval.",
        DATA_RATE,
        note,
    )


def retransmit_rate_limit(transport: str) -> Option[int]:
    """Returns a row of the rate limit of retransmissions."""
    return _rate(f"Highest rate at which an {transport} session retransmits datagrams.", RETRANSMIT_RATE)


def rate_interval(default: int, transport: str) -> Option[int]:
    """Returns a row of the interval of a rate limit."""
    return Option(
        default=default,
        unit="ms",
        minimum=5,
        maximum=100,
        meaning=f"Interval of the rate limits of {transport}: each interval has its own budget of bytes. Ultra "
        "Messaging: only 5, 10, 20, 50 and 100.",
    )


def datagram_max_size(transport: str) -> Option[int]:
    """Returns a row of the largest datagram."""
    return Option(
        default=8192,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning=f"Largest {transport} datagram with its headers; values above 65507, the limit of UDP, count as 65507.",
    )


def receiver_socket_buffer(what: str) -> Option[int]:
    """Returns a row of SO_RCVBUF."""
    return buffer(8 * MIB, f"SO_RCVBUF of sockets that receive {what}, for datagrams that were not read yet.")


def source_socket_buffer(transport: str) -> Option[int]:
    """Returns a row of SO_SNDBUF."""
    return buffer(MIB, f"SO_SNDBUF of the sockets of {transport} sources.")


def behavior(transport: str) -> Option[str]:
    """Returns a row of the pacing."""
    return Option(
        default="receiver_paced",
        choices=("receiver_paced", "source_paced"),
        meaning=f"receiver_paced: an {transport} source waits for its slowest receiver, as a full ring does, until the "
        "receiver is silent for the client_activity_timeout; see slow_receiver_behavior. source_paced: it sends on, as "
        f"in Ultra Messaging, and a receiver that cannot follow loses messages.{ADDITION}",
    )


def congestion_control(transport: str) -> Option[str]:
    """Returns a row that turns congestion control on or off."""
    return Option(
        default="auto",
        choices=("auto", "on", "off"),
        meaning=f"Whether an {transport} session sends no more than the network takes on the way to its slowest "
        "receiver; the rate limits hold as well. auto: over a network, and not on the loopback interface or for "
        f"receivers at the address of the session's own socket.{ADDITION}",
    )


def sm_minimum_interval(transport: str) -> Option[int]:
    """Returns a row of the first session message."""
    return interval(200, f"An idle {transport} session sends its first session message after this time.")


def sm_maximum_interval(transport: str) -> Option[int]:
    """Returns a row of the later session messages."""
    return interval(
        10_000,
        f"Longest time between two session messages of an idle {transport} session; the time doubles from message to "
        "message up to this.",
    )


def transmission_window_size(transport: str) -> Option[int]:
    """Returns a row of the retransmission window."""
    return Option(
        default=24 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning=(
            f"Bytes of datagrams that an {transport} session keeps for retransmission; it drops the oldest first. On "
            "the loopback interface, a receiver-paced session without congestion control also drops what all its "
            "receivers have got; the twin of a ring keeps it."
        ),
    )


def transmission_window_limit(transport: str) -> Option[int]:
    """Returns a row of the window's memory."""
    return Option(
        default=0,
        unit="bytes",
        minimum=0,
        maximum=MAX_WINDOW,
        special_zero=True,
        meaning=f"Memory of the retransmit window of an {transport} session, its overhead included. 0: no limit.",
    )


def ignore_interval(transport: str) -> Option[int]:
    """Returns a row of how long a retransmission is not repeated."""
    return interval(
        -1,
        f"An {transport} session ignores NAKs for a datagram for this time after it has retransmitted it. -1: for the "
        "measured round trip to the receiver that asks, 5 to 500 ms (an addition). Ultra Messaging: 500, which breaks "
        "its rule that this is at most half the nak_backoff_interval, so that a lost retransmission costs 1.2 s.",
        minimum=-1,
    )


def maximum_clients(transport: str) -> Option[int]:
    """Returns a row of how many receivers a session has."""
    return Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning=f"Most contexts that may register with an {transport} session as receivers.{ADDITION}",
    )


def maximum_topics(transport: str) -> Option[int]:
    """Returns a row of how many topics a session has."""
    return Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning=f"Most topics of an {transport} session.{ADDITION}",
    )


def client_activity_timeout(transport: str, note: str = "") -> Option[int]:
    """Returns a row of the time after which a client is dropped."""
    return interval(
        10_000, f"An {transport} session drops a client from which it has received nothing for this time.{note}"
    )


def activity_timeout(transport: str) -> Option[int]:
    """Returns a row of the time after which a silent session counts as ended."""
    return interval(
        60_000,
        f"The receiver treats an {transport} session as ended after this time without a datagram. Keep it at least "
        "three times the session's sm_maximum_interval, and above the nak_generation_interval.",
    )


def connect_interval(transport: str, note: str = "") -> Option[int]:
    """Returns a row of the time between two requests for registration."""
    return interval(100, f"Time between two requests of a receiver to register with an {transport} session.{note}")


def acknowledgement_interval(default: int, transport: str, note: str = "") -> Option[int]:
    """Returns a row of a client's sign of life."""
    return interval(default, f"How often a receiver sends a sign of life to an {transport} session.{note}")


def maximum_connect_attempts(transport: str, note: str = "") -> Option[int]:
    """Returns a row of the number of requests for registration."""
    return Option(
        default=600,
        minimum=1,
        maximum=MAX_COUNT,
        meaning=f"After this many requests to register with an {transport} session without an answer, the receiver "
        f"treats the session as ended.{note}",
    )


def send_naks(transport: str) -> Option[bool]:
    """Returns a row that turns NAKs on or off."""
    return Option(default=True, meaning=f"Whether a receiver sends NAKs for missing {transport} datagrams.")


def nak_initial_backoff_interval(default: int, transport: str) -> Option[int]:
    """Returns a row of the time before the first NAK."""
    return interval(
        default,
        f"Mean time between the detection of a missing {transport} datagram and its first NAK; each time is random, "
        "from half to one and a half times this. 0: at once. -1: after a quarter of the measured round trip, or after "
        "the time by which datagrams were late that others had overtaken"
        + (" (an addition; Ultra Messaging's default is 0)." if default < 0 else " (an addition)."),
        minimum=-1,
        special_zero=True,
    )


def nak_backoff_interval(transport: str, *, spreads: bool = False) -> Option[int]:
    """Returns a row of the time between two NAKs."""
    return interval(
        -1,
        f"Mean time between two NAKs for an {transport} datagram; each time is random, from half to one and a half "
        "times this. 0 or -1: the measured round trip and four times its deviation, 10 to 500 ms, and up to a quarter "
        "more; after three NAKs a time below 200 ms doubles at each NAK up to 200 ms"
        + (", and each time is at least one that is drawn from nak_initial_backoff_interval" if spreads else "")
        + " (an addition; Ultra Messaging's default is 200).",
        minimum=-1,
    )


def nak_suppress_interval(transport: str) -> Option[int]:
    """Returns a row of the pause after an NCF."""
    return interval(
        1000,
        f"How long a receiver sends no NAK for an {transport} datagram after the source has refused to retransmit it "
        "(NCF). If the source had sent it just before, the next NAK comes after the backoff interval instead.",
        minimum=0,
    )


def nak_generation_interval(transport: str) -> Option[int]:
    """Returns a row of the time after which a missing datagram is lost."""
    return interval(
        10_000,
        f"The receiver gives up an {transport} datagram that is missing for this time. A pause before its first NAK "
        "does not count.",
        minimum=5,
    )
