"""Answers to receivers that wait for the next turn of their session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.transport.sending_session import SendingSession


class WaitingAnswers:
    """Control messages for receivers, each sent once: a receiver that does not get its answer asks again."""

    def __init__(self) -> None:
        """Begins without answers."""
        self._all: list[tuple[SendingSession, Hashable, bytes]] = []

    def __bool__(self) -> bool:
        """Returns whether an answer waits."""
        return bool(self._all)

    def add(self, session: SendingSession, peer: Hashable, message: bytes) -> None:
        """Lets an answer wait for the turn of its session."""
        self._all.append((session, peer, message))

    def send(self, session: SendingSession, send: Callable[[Hashable, bytes, bool], bool]) -> None:
        """Sends the answers of a session."""
        if self._all:
            mine = [each for each in self._all if each[0] is session]
            self._all = [each for each in self._all if each[0] is not session]
            for _, peer, message in mine:
                send(peer, message, False)
