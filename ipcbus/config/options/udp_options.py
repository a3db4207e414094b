"""Rows that LBT-RU and LBT-RM both have, each under its own name and with its own defaults."""

from __future__ import annotations

from typing import Final

from ipcbus.config.option_values import Option
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_ID, MAX_MS, MAX_WINDOW, MIB

ADDITION: Final = " An addition to Ultra Messaging."
_MAX_BITS: Final = 10**12
DATA_RATE: Final = 10_000_000
"""Limit over a network, where none is set; Ultra Messaging's."""
RETRANSMIT_RATE: Final = 5_000_000
_AUTOMATIC: Final = (
    "0: {} over a network, as in Ultra Messaging, and no limit on the loopback interface, where there is no network to "
    "protect; a value that is set holds everywhere."
)
_MAX_BUFFER: Final = 2**30


def port(default: int, meaning: str) -> Option[int]:
    """Returns a row of a UDP port; 0 is for the system or the pool to choose, where the default is 0."""
    return Option(default=default, minimum=min(default, 1), maximum=MAX_ID, meaning=meaning)


def interval(default: int, meaning: str, *, minimum: int = 1, special_zero: bool = False) -> Option[int]:
    """Returns a row of a time in milliseconds."""
    return Option(
        default=default, unit="ms", minimum=minimum, maximum=MAX_MS, special_zero=special_zero, meaning=meaning
    )


def limit(default: int, unit: str, meaning: str) -> Option[int]:
    """Returns a row of a rate; 0 is none."""
    return Option(
        default=default, unit=unit, minimum=0, maximum=_MAX_BITS, special_zero=True, meaning=f"{meaning} 0 is no limit."
    )


def _rate(meaning: str, automatic: int, note: str = "") -> Option[int]:
    """Returns a row of a rate that is chosen by where a session is sent to."""
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
        meaning=f"{meaning} 0 leaves it as the system has it. A smaller one than asked for is reported with the "
        "setting of the kernel to change.",
    )


def data_rate_limit(transport: str, note: str = "") -> Option[int]:
    """Returns a row of a source's rate limit."""
    return _rate(
        f"How fast an {transport} session sends new datagrams; what is above it waits for the next interval.",
        DATA_RATE,
        note,
    )


def retransmit_rate_limit(transport: str) -> Option[int]:
    """Returns a row of the rate limit of retransmissions."""
    return _rate(f"How fast an {transport} session sends again what receivers miss.", RETRANSMIT_RATE)


def rate_interval(default: int, transport: str) -> Option[int]:
    """Returns a row of the time in which a rate is measured."""
    return Option(
        default=default,
        unit="ms",
        minimum=5,
        maximum=100,
        meaning=f"The rate limits of {transport} are budgets of bytes that are filled again this often. Ultra "
        "Messaging: only 5, 10, 20, 50 and 100.",
    )


def datagram_max_size(transport: str) -> Option[int]:
    """Returns a row of the largest datagram."""
    return Option(
        default=8192,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning=f"Largest {transport} datagram with its headers; UDP carries 65507 bytes, so that more counts as that.",
    )


def receiver_socket_buffer(what: str) -> Option[int]:
    """Returns a row of SO_RCVBUF."""
    return buffer(8 * MIB, f"SO_RCVBUF of sockets that receive {what}: what has come and was not read yet.")


def source_socket_buffer(transport: str) -> Option[int]:
    """Returns a row of SO_SNDBUF."""
    return buffer(MIB, f"SO_SNDBUF of sockets that {transport} sources send with.")


def sm_minimum_interval(transport: str) -> Option[int]:
    """Returns a row of the first session message."""
    return interval(200, f"An {transport} session that falls silent sends its first session message after this long.")


def sm_maximum_interval(transport: str) -> Option[int]:
    """Returns a row of the later session messages."""
    return interval(
        10_000, f"Each session message of a silent {transport} session doubles the time to the next up to this."
    )


def transmission_window_size(transport: str) -> Option[int]:
    """Returns a row of the retransmission window."""
    return Option(
        default=24 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning=f"How many bytes of datagrams an {transport} session keeps to send them again; the oldest go first.",
    )


def transmission_window_limit(transport: str) -> Option[int]:
    """Returns a row of the window's memory."""
    return Option(
        default=0,
        unit="bytes",
        minimum=0,
        maximum=MAX_WINDOW,
        special_zero=True,
        meaning=f"Memory of the window of an {transport} session with what keeping each datagram takes. 0 is no limit.",
    )


def ignore_interval(transport: str) -> Option[int]:
    """Returns a row of how long a retransmission is not repeated."""
    return interval(
        100,
        f"What an {transport} session has sent again is not sent again for this long, whoever asks. Ultra Messaging: "
        "500, which breaks its own rule that this is at most half the nak_backoff_interval: a retransmission that is "
        "lost then costs 1.2 s.",
        minimum=0,
    )


def maximum_clients(transport: str) -> Option[int]:
    """Returns a row of how many receivers a session has."""
    return Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning=f"How many receiving contexts may register with an {transport} session.{ADDITION}",
    )


def maximum_topics(transport: str) -> Option[int]:
    """Returns a row of how many topics a session has."""
    return Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning=f"How many topics an {transport} session may carry.{ADDITION}",
    )


def client_activity_timeout(transport: str, note: str = "") -> Option[int]:
    """Returns a row of when a client is gone."""
    return interval(
        10_000, f"A client from which an {transport} session has heard nothing for this long is gone.{note}"
    )


def activity_timeout(transport: str) -> Option[int]:
    """Returns a row of when a session is over."""
    return interval(
        60_000,
        f"An {transport} session that is silent for this long has ended for the receiver. Keep it at least three times "
        "the session's sm_maximum_interval, and above the nak_generation_interval.",
    )


def connect_interval(transport: str, note: str = "") -> Option[int]:
    """Returns a row of how often to ask for being a client."""
    return interval(100, f"How often a receiver asks an {transport} session to register it, until it has.{note}")


def acknowledgement_interval(default: int, transport: str, note: str = "") -> Option[int]:
    """Returns a row of a client's sign of life."""
    return interval(default, f"How often a receiver tells an {transport} session that it is still there.{note}")


def maximum_connect_attempts(transport: str, note: str = "") -> Option[int]:
    """Returns a row of when to give up to become a client."""
    return Option(
        default=600,
        minimum=1,
        maximum=MAX_COUNT,
        meaning=f"How often a receiver asks an {transport} session to register it before the session has ended for "
        f"it.{note}",
    )


def send_naks(transport: str) -> Option[bool]:
    """Returns a row of whether to ask for what is missing."""
    return Option(default=True, meaning=f"Whether a receiver asks for {transport} datagrams that it misses (NAK).")


def nak_initial_backoff_interval(default: int, transport: str) -> Option[int]:
    """Returns a row of the first request."""
    return interval(
        default,
        f"A receiver asks for an {transport} datagram this long after it was found missing, drawn from half to one and "
        "a half times this. 0 asks at once.",
        minimum=0,
        special_zero=True,
    )


def nak_backoff_interval(transport: str) -> Option[int]:
    """Returns a row of the next requests."""
    return interval(
        200,
        f"A receiver asks again this long after it asked for an {transport} datagram, drawn from half to one and a "
        "half times this.",
    )


def nak_suppress_interval(transport: str) -> Option[int]:
    """Returns a row of what an NCF does."""
    return interval(
        1000,
        f"A receiver does not ask for an {transport} datagram for this long after its source has refused to send it "
        "again (NCF).",
        minimum=0,
    )


def nak_generation_interval(transport: str) -> Option[int]:
    """Returns a row of when a loss is given up."""
    return interval(
        10_000, f"An {transport} datagram that is missing for this long is given up by the receiver.", minimum=5
    )
