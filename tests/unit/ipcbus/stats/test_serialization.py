from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.stats import DomainSnapshot, Histogram, rates
from tests.kit.cases import each_of
from tests.unit.ipcbus.stats.made import SECOND, context, histogram, receiver, session, slot, snapshot, source

FIRST = snapshot(context(session(slots=(slot(latency=histogram(3)),), sources=(source(),)), receivers=(receiver(),)))
LATER = session(
    at=SECOND,
    wait="blocked",
    counts={"msgs_sent": 3, "lbm_msgs_sent": 6},
    slots=(slot(lag=500, latency=histogram(3, 5)),),
    sources=(source(),),
)
FOUND = rates(FIRST, snapshot(context(LATER, at=SECOND, receivers=(receiver({"lost": 2}),)), at=SECOND))


def test_there_and_back() -> None:
    assert DomainSnapshot.from_dict(json.loads(json.dumps(FOUND.to_dict()))) == FOUND
    assert DomainSnapshot.from_dict(FIRST.to_dict()) == FIRST


def test_what_is_reckoned_stands_there_too() -> None:
    (found,) = FOUND.to_dict()["contexts"][0]["sessions"]
    assert (found["fill"], found["messages_per_datagram"], found["held_up_by"]) == (0.5, 2.0, 0)
    (first,) = FIRST.to_dict()["contexts"][0]["sessions"]
    assert first["held_up_by"] is None


def test_what_another_release_added_is_passed_over() -> None:
    plain = FOUND.to_dict()
    plain["contexts"][0]["sessions"][0]["colour"] = "red"
    assert DomainSnapshot.from_dict(plain) == FOUND


@each_of(
    ("path", "value", "said"),
    [
        (("domain",), 3, "snapshot.domain is 3, not of type str"),
        (("contexts",), {}, "snapshot.contexts is {}, not of type list"),
        (("contexts", 0, "pid"), True, r"snapshot.contexts\[0\].pid is True, not of type int"),
        (("contexts", 0, "sessions", 0, "counters", "msgs_sent"), "many", "counters.msgs_sent is 'many'"),
        (("contexts", 0, "sessions", 0, "receivers", 0, "latency"), {"buckets": [[3, 1], [7777, 1]]}, "damaged"),
        (("contexts", 0, "sessions", 0, "receivers", 0, "latency", "buckets"), [[17, 1], [33, 1]], "another layout"),
        (("contexts", 0, "sessions", 0, "receivers", 0, "latency", "buckets"), [[3, -1]], "damaged"),
        (("contexts", 0, "sessions", 0, "receivers", 0, "latency", "buckets"), 5, "damaged"),
    ],
)
def test_damage(path: tuple[str | int, ...], value: object, said: str) -> None:
    plain = copy.deepcopy(FOUND.to_dict())
    place = plain
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    with pytest.raises(ValueError, match=said):
        DomainSnapshot.from_dict(plain)


def test_missing() -> None:
    plain = FOUND.to_dict()
    del plain["contexts"][0]["name"]
    with pytest.raises(ValueError, match=r"snapshot.contexts\[0\] has no 'name'"):
        DomainSnapshot.from_dict(plain)


@pytest.mark.parametrize("value", [10**400, -1, 2**64])
def test_numbers_that_no_counter_can_have(value: int) -> None:
    plain = FOUND.to_dict()
    for place in (plain, plain["contexts"][0]["sessions"][0]["counters"]):
        name = "taken_ns" if place is plain else "msgs_sent"
        before, place[name] = place[name], value
        with pytest.raises(ValueError, match="but a counter is from 0"):
            DomainSnapshot.from_dict(plain)
        place[name] = before


def test_counters_that_another_release_did_not_know_are_0() -> None:
    plain = FOUND.to_dict()
    del plain["contexts"][0]["sessions"][0]["receivers"][0]["counters"]["lost"]
    (found,) = DomainSnapshot.from_dict(plain).sessions
    assert found.receivers[0].counters["lost"] == 0


def test_what_is_no_text_becomes_one() -> None:
    plain = FOUND.to_dict()
    plain["domain"] = "a\ud800b"
    assert DomainSnapshot.from_dict(plain).domain == "a\\ud800b"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["domain", "contexts"]), inner),
    max_leaves=5,
)


@given(JSON)
def test_nothing_but_value_errors(value: object) -> None:
    with pytest.raises(ValueError, match="."):
        DomainSnapshot.from_dict(value)


@given(st.dictionaries(st.integers(0, 559), st.integers(1, 2**64 - 1), min_size=1, max_size=20))
def test_histograms_there_and_back(buckets: dict[int, int]) -> None:
    counts = Histogram.empty().counts.copy()
    for bucket, count in buckets.items():
        counts[bucket] = count
    found = Histogram(counts, 12345)
    assert Histogram.from_dict(json.loads(json.dumps(found.to_dict()))) == found
