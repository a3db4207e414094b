"""The screen of a recorded domain with a session over UDP, and with a receiver that had to fall back to it."""

from __future__ import annotations

import dataclasses
import re

from rich.cells import cell_len

from ipcbus.stats import COUNTERS, RING, DomainSnapshot, SessionStats, SlotStats
from ipcbus_tools.common import size as size_text
from ipcbus_tools.render import udp_text
from ipcbus_tools.top import view as views
from ipcbus_tools.top.view import View
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import FEED, ORDERS, TRADING, UDP, changed, frame, lines, text

KEYS = {row.session.source: row.key for row in frame(UDP).rows if row.session}
FED, ORDERED = View(chosen=KEYS[FEED]), View(chosen=KEYS[ORDERS])


def session(source: str) -> SessionStats:
    found = UDP.session(source)
    assert found is not None
    return found


def test_window_is_what_the_source_can_send_again() -> None:
    fed, ring = (next(each for each in UDP.sessions if each.source == source) for source in (FEED, ORDERS))
    assert fed.uplink is not None
    held = size_text(fed.uplink.counters["txw_bytes"])
    shown = dict(udp_text.windows(fed))
    assert (udp_text.window(fed), shown["send buffer"].split(",")[0]) == (f"{held} held", size_text(fed.capacity))
    assert shown["window"].endswith(f"{held} held for retransmission")
    assert udp_text.window(ring) == size_text(ring.capacity)
    assert dict(udp_text.windows(ring))["window"].startswith(size_text(ring.capacity))


@each_of("page", [views.SESSIONS, views.TOPICS, views.DETAILS])
@each_of("size", [(80, 24), (200, 60), (40, 10), (30, 8)])
def test_fills_the_screen_exactly(page: str, size: tuple[int, int]) -> None:
    found = lines(frame(UDP), dataclasses.replace(FED, page=page), *size)
    assert len(found) == size[1]
    assert max(map(cell_len, found)) <= size[0]


def test_a_nak_storm_and_the_data_rate_are_seen_on_80_columns() -> None:
    found = text(frame(UDP), FED)
    assert re.search(r"NAKs [\d.]+/s  again [\d.]+/s", found)
    assert re.search(rf"^> LBT-RU:127\S*…\S*{FEED[-9:]} blocked", found, re.MULTILINE)  # its ends tell it from others
    assert "held up by the data rate of LBT-RU (4 Mbit/s)" in found
    assert "NAK/s" in found
    assert re.search(r"4002 \w+ +LBT-RU ", found)
    assert "unrec" in found


def test_a_wide_screen_has_everything() -> None:
    found = text(frame(UDP), FED, 200, 40)
    for wanted in ("again/s", "lmtd%", "rate limited 1", "100 % of the time", "LBT-RU", "unrec"):
        assert wanted in found


def test_a_fallback_and_its_reason_stand_beside_who_reads_the_ring() -> None:
    found = text(frame(UDP), ORDERED)
    assert re.search(r"4002 \w+ +ring ", found)
    assert re.search(r"4003 \w+ +LBT-RU all 2 rec", found)
    assert "2 receivers, 1 of them over LBT-RU, 1 slot" in found
    assert "all 2 receiver slots of the session are taken" in text(frame(UDP), ORDERED, 250, 40)


def test_without_udp_there_are_no_columns_of_it() -> None:
    found = text(frame(TRADING), View(), 220, 40)
    assert "NAK" not in found
    assert "lmtd%" not in found
    assert "reason" not in found


def test_what_was_given_up_is_said_in_the_header() -> None:
    def worse(each: SessionStats) -> SessionStats:
        receivers = tuple(
            dataclasses.replace(
                slot,
                reception=slot.reception
                and dataclasses.replace(slot.reception, counters={**slot.reception.counters, "unrecovered_tmo": 3}),
            )
            for slot in each.receivers
        )
        return dataclasses.replace(each, receivers=receivers)

    assert "unrecovered 9" in text(frame(changed(UDP, session=worse)), FED, 200)


def test_details_have_every_counter_and_its_meaning() -> None:
    found = text(frame(UDP), dataclasses.replace(ORDERED, page=views.DETAILS), 200, 400)
    for counter in COUNTERS:
        if counter.of in ("uplink", "reception"):
            assert re.search(rf"{counter.name} .*{re.escape(counter.meaning)}", found), counter
    assert re.search("receives over LBT-RU at 127.0.0.1", found)
    assert "reason        all 2 receiver slots" in found
    fed = text(frame(UDP), dataclasses.replace(FED, page=views.DETAILS), 200, 400)
    assert "held up by    the data rate of LBT-RU (4 Mbit/s)" in fed
    assert "data 4 Mbit/s, retransmissions no limit" in fed


def test_a_client_of_another_host_is_a_line() -> None:
    def told(slot: SlotStats) -> SlotStats:
        if slot.layer == RING:
            return slot
        return dataclasses.replace(slot, counters={}, per_second={}, reception=None, recent=None, user="", command="")

    def far(each: SessionStats) -> SessionStats:
        receivers = tuple(map(told, each.receivers))
        return dataclasses.replace(each, receivers=receivers)

    found = changed(UDP, session=far)
    for page in (views.SESSIONS, views.DETAILS):
        assert "4003" in text(frame(found), dataclasses.replace(FED, page=page), 120, 200)
    assert DomainSnapshot.from_dict(found.to_dict()) == found


def test_sorted_by_naks_and_filtered_by_layer() -> None:
    rows = frame(UDP).rows
    by_naks = views.shown(rows, View(sort="NAK/s"))
    assert [row.session.source for row in by_naks if row.session] == [FEED, ORDERS]
    assert len(views.shown(rows, View(filter="lbt-ru"))) == 2


@each_of(("rate", "text"), [(0, "no limit"), (999, "999 bit/s"), (4_000_000, "4 Mbit/s"), (10**10, "10 Gbit/s")])
def test_bits(rate: int, text: str) -> None:
    assert udp_text.bits(rate) == text


def test_facts() -> None:
    found = dict(udp_text.facts(session(FEED)))
    assert found["over UDP"] == f"{FEED}, 2 of 1024 receivers"
    assert "% of the time" in found["limited"]
    assert re.fullmatch(r"\d+ NAKs, \d+ sent again, \d+ refused or put off", found["repair"])
    assert dict(udp_text.facts(next(iter(TRADING.sessions)))) == {}
