"""The terms of a recovery: how often, how much and for how long a receiver asks its source for messages again."""

from __future__ import annotations

from dataclasses import dataclass, field

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """When a range of numbers is asked for, and when it is given up. Times in ns.

    Attributes:
        initial_delay_ns: from the discovery of a gap to the first request for it.
        interval_ns: from a request to the next one for the same numbers, while the source answers nothing.
        interval_max_ns: that interval doubles with each request up to this one.
        timeout_ns: after this time without any answer, everything that is missing is given up.
        requests_max: most requests that wait for an answer.
        numbers_max: most numbers of one request. At most `requests_max * numbers_max` numbers from the first missing
            one on are on their way. (Ultra Messaging counts single messages, which bounds its speed to a few messages
            a round trip.)
    """

    initial_delay_ns: int
    interval_ns: int
    interval_max_ns: int
    timeout_ns: int
    requests_max: int
    numbers_max: int


LATE_JOIN = RequestTerms(0, 500 * _MS, 500 * _MS, 10_000 * _MS, 10, 1000)
"""Options retransmit_request_interval, _message_timeout and _outstanding_maximum; a request covers 1000 numbers."""

OTR = RequestTerms(2000 * _MS, 1000 * _MS, 10_000 * _MS, 60_000 * _MS, 200, 50)
"""Options otr_request_initial_delay, _minimum_interval, _maximum_interval, _message_timeout and _outstanding_maximum; a
request covers 50 numbers. On rings the delay is 0: the transport itself never sends a message again."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """The options of a receiver for late join and off-transport recovery; the defaults are those of the options.

    Attributes:
        late_join: the terms of a late join.
        otr: the terms of off-transport recovery.
        info_interval_ns: option late_join_info_request_interval.
        info_requests_max: option late_join_info_request_maximum: the number of intervals after which the receiver goes
            on without history.
        asks_silent_sources: option retransmit_initial_sequence_number_request: ask also a source that has sent nothing.
        history: most messages from before the receiver joined (argument `history` of a receiver, option
            retransmit_request_maximum); None for all. The source counts them; a fragmented message counts once.
    """

    late_join: RequestTerms = field(default=LATE_JOIN)
    otr: RequestTerms = field(default=OTR)
    info_interval_ns: int = 1000 * _MS
    info_requests_max: int = 60
    asks_silent_sources: bool = True
    history: int | None = None
