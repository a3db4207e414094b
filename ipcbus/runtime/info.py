"""What a receiver is told of the sessions that carry its topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a receiver knows of a session that carries its topic.

    Attributes:
        source: source string.
        transport: name of the transport.
        owner_pid: process that sends.
        state: `joined`, `ended`, or `refused`.
        counters: this context's counters on the session, by their names in the statistics.
        reason: why it is not joined; empty when it is.
    """

    source: str
    transport: str
    owner_pid: int
    state: str
    counters: dict[str, int]
    reason: str
