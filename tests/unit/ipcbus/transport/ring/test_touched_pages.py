"""Pages of rings that are touched before the first message needs them."""

from __future__ import annotations

import resource

import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S

MIB = 1 << 20
PAGES = MIB // resource.getpagesize()


def context(domain: str, touched: int | None) -> ipcbus.Context:
    options = {} if touched is None else {"shared_memory_touch_maximum": touched}
    return ipcbus.Context({"context": options}, domain=domain, operational_mode="sequential")


def faults_of_the_first_pass(domain: str, sending: int | None, receiving: int | None) -> int:
    """Counts the pages that the system enters while one ring of 1 MiB is written and read for the first time."""
    got: list[int] = []
    with context(domain, sending) as there, context(domain, receiving) as here:
        source = there.source("t", transport="lbtsmx", transport_lbtsmx_transmission_window_size=MIB)
        receiver = here.receiver("t", lambda message: got.append(len(message)))
        receiver.wait_for_sources(1, GIVE_UP_S)
        payload = bytes(4000)
        source.send(payload, flush=True)
        while len(got) < 2:  # the beginning and the message
            here.process_events(0.01)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(MIB // 4096):
            source.send(payload, flush=True)
            here.process_events(0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.parametrize(
    ("sending", "receiving", "least", "most"),
    [
        pytest.param(MIB, MIB, 0, PAGES // 8, id="both"),
        pytest.param(0, MIB, PAGES * 3 // 4, PAGES * 5 // 4, id="receiver"),
        pytest.param(MIB, 0, 8, PAGES // 2, id="source"),  # the system enters several pages for a read
        pytest.param(MIB - 1, 0, PAGES * 3 // 4, 3 * PAGES, id="larger rings"),
    ],
)
def test_touched_pages_are_entered_before_the_first_message(
    domain: str, sending: int, receiving: int, least: int, most: int
) -> None:
    counted = faults_of_the_first_pass(domain, sending, receiving)
    assert least <= counted <= most


def test_small_rings_are_touched_by_default(domain: str) -> None:
    assert faults_of_the_first_pass(domain, None, None) <= PAGES // 8
