"""Sessions that this context had to leave: when they are joined again, and when they are over."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.runtime.receiving.detached_sessions import DetachedSessions
from tests.kit.resolving import source

if TYPE_CHECKING:
    from ipcbus.resolution.local.adverts import SessionAdvert

ADVERT = source(2, "a").session
OFFERED = {ADVERT: {1: SourceAdvert(ADVERT, "a", 1)}}


class Session:
    """A session with one topic, `a`, as far as it is asked after it was left."""

    datagram_source = SimpleNamespace(stopped_at=17, lines=None)
    source_string, owner_pid, activity_timeout = "source", 5, SimpleNamespace(timeout_ns=1_000_000_000)

    def __init__(self, advert: SessionAdvert = ADVERT) -> None:
        self.advert = advert
        self.over = self.closed = self.alive = False
        self.room = True
        self.got: list[object] = []

    def note_eviction(self) -> None:
        self.got.append("cut off")

    def finish(self) -> None:
        self.over = True
        self.got.append("finished")

    def has_room(self) -> bool:
        return self.room

    def shows_life(self) -> bool:
        return self.alive

    def continue_from(self, before: object, numbers: object) -> None:
        self.got.append((before, numbers))

    def topics(self) -> list[Any]:
        return [SimpleNamespace(topic_number=1, origin=SimpleNamespace(topic="a"))]

    def report_losses(self) -> None:
        self.got.append("lost")


@pytest.fixture
def left() -> DetachedSessions:
    return DetachedSessions()


def add(left: DetachedSessions, *, silent: bool = False) -> Session:
    session = Session()
    (left.add_silent if silent else left.add_evicted)(cast("Any", session))
    return session


def over(left: DetachedSessions, offered: Any = OFFERED, wanted: str = "a", contexts: tuple[int, ...] = (2,)) -> int:  # noqa: ANN401
    return len(left.take_finished(offered, lambda topic: topic == wanted, contexts))


def test_an_evicted_session_waits_for_room_in_its_receivers(left: DetachedSessions) -> None:
    session = add(left)
    assert session.got == ["cut off"]
    session.room = False
    assert left.must_wait(ADVERT)
    session.room = True
    assert not left.must_wait(ADVERT)
    assert not left.any_shows_life()  # only a silent session needs a sign


def test_a_silent_session_waits_for_a_sign_of_life(left: DetachedSessions) -> None:
    session = add(left, silent=True)
    assert session.got == ["finished"]
    assert left.must_wait(ADVERT)
    assert not left.any_shows_life()
    session.alive = True
    assert not left.must_wait(ADVERT)
    assert left.any_shows_life()


def test_a_session_that_is_joined_again_goes_on_from_where_it_was_left(left: DetachedSessions) -> None:
    before, again, other = add(left), Session(), Session(dataclasses.replace(ADVERT, session_id=9))
    assert not left.joined_again(cast("Any", other), {1})
    assert left.joined_again(cast("Any", again), {1})
    assert again.got == [(before, {1})]
    assert ADVERT not in left
    assert not left.joined_again(cast("Any", again), {1})


def test_an_offered_session_is_over_when_its_topic_or_the_last_receiver_is_gone(left: DetachedSessions) -> None:
    add(left)
    assert over(left) == 0
    assert over(left, wanted="b") == 1
    add(left)
    assert over(left, {ADVERT: {}}) == 1
    assert left.sessions() == []


def test_a_session_that_is_not_offered_is_over_when_it_is_closed_or_its_context_is_gone(left: DetachedSessions) -> None:
    session = add(left)
    assert over(left, {}) == 0  # its last messages may not be published yet
    assert left.unsettled(())
    session.closed = True
    assert over(left, {}) == 1
    add(left)
    assert over(left, {}, contexts=()) == 1


def test_the_timer_tells_the_losses_of_each(left: DetachedSessions) -> None:
    session = add(left)
    left.tell_lost()
    assert session.got == ["cut off", "lost"]
    left.close()
    left.tell_lost()
    assert session.got == ["cut off", "lost"]


def test_an_interrupted_session_goes_on_where_it_stopped_if_it_comes_back(left: DetachedSessions) -> None:
    before, again = Session(), Session()
    left.add_interrupted(cast("Any", before))
    assert ADVERT not in left  # it need not wait for anything
    assert left.sessions() == []
    assert left.resume_at(ADVERT) == 17
    assert left.joined_again(cast("Any", again), {1})
    assert again.got == [(before, {1})]
    assert left.resume_at(ADVERT) is None


def test_an_interrupted_session_is_kept_while_its_topic_has_receivers(left: DetachedSessions) -> None:
    left.add_interrupted(cast("Any", Session()))
    left.keep_interrupted(lambda topic: topic == "a", OFFERED)
    assert left.resume_at(ADVERT) == 17
    left.keep_interrupted(lambda topic: topic == "b", OFFERED)
    assert left.resume_at(ADVERT) is None


def test_the_oldest_of_too_many_interrupted_sessions_is_forgotten(left: DetachedSessions) -> None:
    adverts = [dataclasses.replace(ADVERT, session_id=number) for number in range(257)]
    for advert in adverts:
        left.add_interrupted(cast("Any", Session(advert)))
    assert [left.resume_at(advert) for advert in (adverts[0], adverts[1], adverts[256])] == [None, 17, 17]


@pytest.mark.parametrize("local", [True, False])
def test_an_interrupted_session_of_this_host_is_over_when_it_is_not_offered_any_more(
    left: DetachedSessions, local: bool
) -> None:
    session = Session()
    session.datagram_source = SimpleNamespace(stopped_at=17, lines="its ring" if local else None)
    session.closed = True
    left.add_interrupted(cast("Any", session))
    left.keep_interrupted(lambda topic: topic == "a", OFFERED)
    assert over(left, {}) == 0
    left.keep_interrupted(lambda topic: topic == "a", {})
    assert over(left, {}) == (1 if local else 0)
    assert left.resume_at(ADVERT) == (None if local else 17)  # one of another host may come back
