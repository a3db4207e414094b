from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipcbus.runtime.sending.waiting_answers import WaitingAnswers

if TYPE_CHECKING:
    from collections.abc import Hashable


def test_each_session_gets_its_answers_once() -> None:
    one: Any = object()
    other: Any = object()
    sent: list[tuple[Hashable, bytes, bool]] = []

    def send(peer: Hashable, message: bytes, urgent: bool) -> bool:
        sent.append((peer, message, urgent))
        return False

    answers = WaitingAnswers()
    assert not answers
    answers.add(one, 1, b"a")
    answers.add(other, 2, b"b")
    answers.add(one, 3, b"c")
    answers.send(one, send)
    assert sent == [(1, b"a", False), (3, b"c", False)]
    answers.send(one, send)
    assert answers
    answers.send(other, send)
    assert sent[2:] == [(2, b"b", False)]
    assert not answers
