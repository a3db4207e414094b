from __future__ import annotations

import pytest

from ipcbus_tools.rates.rate_meter import LONGEST_S, Growth, RateMeter
from tests.kit.cases import each_of

SECOND = 1_000_000_000


def messages(count: int, size: int = 10) -> Growth:
    return Growth(count, count * size, count)


def metered(*counts: int, window: float = 10.0, interval: float = 1.0) -> RateMeter:
    """So many messages came from look to look."""
    meter = RateMeter(window, 0)
    for place, count in enumerate(counts, 1):
        meter.add(round(place * interval * SECOND), messages(count))
    return meter


def test_before_anything_came() -> None:
    for meter in (metered(), metered(0, 0, 0)):
        flow = meter.flow()
        assert (flow.messages.now, flow.messages.mean, flow.messages.max, flow.count) == (0, 0, 0, 0)
        assert flow.message_bytes is None
    assert metered(0, 0, 0).flow().window_seconds == 3


@pytest.mark.parametrize("rate", [5, 1000, 20_000_000])
def test_many_messages_are_told_from_look_to_look(rate: int) -> None:
    flow = metered(*[rate] * 4).flow()
    assert flow.messages.now == flow.messages.mean == flow.messages.min == flow.messages.max == rate
    assert flow.messages.std == 0
    assert flow.bytes.mean == 10 * rate
    assert (flow.message_bytes, flow.window_seconds, flow.count) == (10, 4, 4 * rate)


def test_spread() -> None:
    flow = metered(100, 200, 300).flow()
    found = flow.messages
    assert (found.now, found.mean, found.min, found.max) == (300, 200, 100, 300)
    assert found.std == pytest.approx((2 / 3) ** 0.5 * 100)


def test_window_forgets() -> None:
    flow = metered(*[1000] * 5, *[10] * 3, window=3).flow()
    assert (flow.messages.max, flow.window_seconds, flow.count) == (10, 3, 30)


@each_of("begin", range(10))
def test_a_message_every_ten_seconds(begin: int) -> None:
    counts = [0] * begin + ([1] + [0] * 9) * 4 + [1]
    meter = RateMeter(10, 0)
    for place, count in enumerate(counts, 1):
        meter.add(place * SECOND, messages(count))
        if place > begin + 10:
            found = meter.flow().messages
            assert found.mean == found.now == found.min == found.max == pytest.approx(0.1)


@pytest.mark.parametrize("looks", [1, 2, 7])
def test_a_single_message_is_one_in_the_time_watched(looks: int) -> None:
    flow = metered(1, *[0] * (looks - 1)).flow()
    assert (flow.count, flow.window_seconds) == (1, looks)
    found = flow.messages
    assert found.now == found.mean == found.min == found.max == pytest.approx(1 / looks)
    assert flow.bytes.mean == pytest.approx(10 / looks)


def test_a_message_every_minute_fits_into_the_longest_time() -> None:
    assert LONGEST_S >= 120
    found = metered(*([1] + [0] * 59) * 3, window=1).flow().messages
    assert found.mean == pytest.approx(1 / 60)


def test_few_messages_that_end_fade_and_are_forgotten() -> None:
    seen = []
    meter = metered(*[1, 0] * 5)
    for place in range(11, 11 + 140):
        meter.add(place * SECOND, Growth())
        seen.append(meter.flow().messages.mean)
    assert seen == sorted(seen, reverse=True)
    assert seen[20] < 0.3
    assert seen[-1] == 0


def test_many_messages_that_end_are_nothing_at_once() -> None:
    flow = metered(*[1_000_000] * 5, 0).flow()
    assert flow.messages.now == flow.messages.min == 0
    assert flow.messages.mean == pytest.approx(5_000_000 / 6)
    flow = metered(*[1_000_000] * 5, *[0] * 20).flow()
    assert flow.messages.mean == flow.messages.max == flow.count == 0


def test_a_burst_after_silence_is_no_mean_of_both() -> None:
    found = metered(10, *[0] * 4, 1000).flow().messages
    assert (found.now, found.min, found.max) == (1000, 0, 1000)
    assert found.mean == pytest.approx(1010 / 6)


def test_messages_by_turns_do_not_flicker() -> None:
    meter = RateMeter(10, 0)
    seen = []
    for place in range(1, 40):
        meter.add(place * SECOND // 2, messages(place % 2))
        seen.append(meter.flow().messages.now)
    assert seen[5:] == pytest.approx([1.0] * 34)


def test_a_look_that_is_not_later_counts_with_the_next() -> None:
    meter = metered(100, 100)
    meter.add(SECOND * 3 // 2, Growth())
    meter.add(SECOND * 2, messages(50))
    before = meter.flow()
    assert (before.messages.now, before.messages.std, before.count) == (100, 0, 200)
    meter.add(SECOND * 3, messages(50))
    assert (meter.flow().messages.now, meter.flow().count) == (100, 300)


def test_bytes_of_an_open_batch_belong_to_its_messages() -> None:
    meter = RateMeter(10, 0)
    for place in range(1, 5):
        # Two are sent between two looks; the second one is published later.
        meter.add(place * SECOND, Growth(messages=2 if place > 1 else 1, bytes=128, numbered=2))
    assert meter.flow().message_bytes == 64
