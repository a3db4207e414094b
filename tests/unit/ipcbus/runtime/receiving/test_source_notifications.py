"""What a receiver is told of sources and topics, in virtual time: every beginning has its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import SourceNotification, SourceNotificationType
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
from ipcbus.runtime.receiving.source_notifications import SourceNotifications
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = SessionAdvert(1, 0, TRANSPORT_LBTIPC, 0xABC, 20001, 65536, False, 8)
A, OTHER_A, B = (SourceAdvert(SESSION, topic, number) for number, topic in enumerate(("a", "a", "b")))


class Told:
    """A receiver's callbacks; notes what is called, and may do something about it."""

    def __init__(self, linger_ns: int = 0) -> None:
        self.got: list[str] = []
        self.errors: list[str] = []
        self.does: dict[str, Callable[[], object]] = {}
        self.sink = Sink(None, 1)
        self.notifications = SourceNotifications(
            self.sink,
            self,
            on_source=lambda told: self._note(f"{told.type.name} {told.topic} {told.pid}"),
            on_create=lambda topic: self._note(f"create {topic}"),
            on_delete=lambda topic: self._note(f"delete {topic}"),
            linger_ns=linger_ns,
        )

    def failed(self, sink: Sink, error: BaseException) -> None:
        self.errors.append(str(error))

    def _note(self, what: str) -> None:
        self.got.append(what)
        self.does.get(what, lambda: None)()

    def take(self) -> list[str]:
        got, self.got = self.got, []
        return got


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_topic_comes_before_its_first_source_and_goes_after_its_last(told: Told) -> None:
    told.notifications.begin(A, 5)
    assert told.take() == ["create a", "CREATE a 5"]
    told.notifications.begin(OTHER_A, 6)
    told.notifications.begin(B, 7)
    assert told.take() == ["CREATE a 6", "create b", "CREATE b 7"]
    told.notifications.keep({OTHER_A, B}, 0)
    assert told.take() == ["DELETE a 5"]
    told.notifications.keep({B}, 0)
    assert told.take() == ["DELETE a 6", "delete a"]
    told.notifications.end()
    assert told.take() == ["DELETE b 7", "delete b"]


def test_what_is_known_is_not_told_again(told: Told) -> None:
    for _ in range(3):
        told.notifications.begin(A, 5)
        told.notifications.keep({A}, 0)
    assert told.take() == ["create a", "CREATE a 5"]
    for _ in range(3):
        told.notifications.end()
    assert told.take() == ["DELETE a 5", "delete a"]


def test_a_topic_lingers() -> None:
    told = Told(linger_ns=100)
    told.notifications.begin(A, 5)
    told.take()
    told.notifications.keep((), 1000)
    assert told.take() == ["DELETE a 5"]
    told.notifications.keep((), 1099)
    assert told.take() == []
    told.notifications.keep((), 1100)
    assert told.take() == ["delete a"]
    told.notifications.keep((), 9999)
    assert told.take() == []


def test_a_source_that_comes_back_in_time_keeps_its_topic() -> None:
    told = Told(linger_ns=100)
    told.notifications.begin(A, 5)
    told.notifications.keep((), 0)
    told.notifications.begin(OTHER_A, 6)
    told.notifications.keep({OTHER_A}, 200)
    assert told.take() == ["create a", "CREATE a 5", "DELETE a 5", "CREATE a 6"]
    told.notifications.keep((), 300)  # lingers for the whole time again
    told.notifications.keep((), 399)
    assert told.take() == ["DELETE a 6"]
    told.notifications.keep((), 400)
    assert told.take() == ["delete a"]


def test_the_end_waits_for_nothing() -> None:
    told = Told(linger_ns=100)
    told.notifications.begin(A, 5)
    told.notifications.keep((), 0)
    told.notifications.end()
    assert told.take() == ["create a", "CREATE a 5", "DELETE a 5", "delete a"]
    told.notifications.begin(B, 7)
    assert told.take() == []


@pytest.mark.parametrize(
    ("when", "got"),
    [
        ("create a", ["create a", "delete a"]),
        ("CREATE a 5", ["create a", "CREATE a 5", "DELETE a 5", "delete a"]),
    ],
)
def test_a_callback_may_close_its_receiver_at_the_beginning(told: Told, when: str, got: list[str]) -> None:
    told.does[when] = told.notifications.end
    told.notifications.begin(A, 5)
    assert told.take() == got


@pytest.mark.parametrize("when", ["DELETE a 5", "DELETE b 7", "delete a"])
def test_a_callback_may_close_its_receiver_at_the_end(told: Told, when: str) -> None:
    told.notifications.begin(A, 5)
    told.notifications.begin(B, 7)
    told.take()
    told.does[when] = told.notifications.end
    told.notifications.keep((), 0)
    assert sorted(told.take()) == ["DELETE a 5", "DELETE b 7", "delete a", "delete b"]


def test_an_exception_is_counted_and_keeps_nothing_back(told: Told) -> None:
    def fail() -> None:
        raise ValueError("no")

    for what in ("create a", "CREATE a 5", "DELETE a 5", "delete a"):
        told.does[what] = fail
    told.notifications.begin(A, 5)
    told.notifications.end()
    assert told.take() == ["create a", "CREATE a 5", "DELETE a 5", "delete a"]
    assert told.errors == ["no"] * 4
    assert told.sink.callback_errors == 4


def test_a_notification_says_which_source_it_was(told: Told) -> None:
    got: list[SourceNotification] = []
    notifications = SourceNotifications(told.sink, told, on_source=got.append)
    notifications.begin(A, 5)
    notifications.end()
    assert got == [
        SourceNotification(SourceNotificationType.CREATE, "a", "LBT-IPC:00000abc:20001", 5),
        SourceNotification(SourceNotificationType.DELETE, "a", "LBT-IPC:00000abc:20001", 5),
    ]
