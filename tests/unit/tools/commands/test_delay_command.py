from __future__ import annotations

import dataclasses

from ipcbus.stats.snapshot_model import NO_COUNTERS
from ipcbus_tools.commands.delay_command import delays, lines
from tests.unit.tools.top.recorded import FAST, SLOW, TRADING, changed


def test_receivers_of_the_topic() -> None:
    found = delays(TRADING, "quotes.AAPL")
    assert [(reader.source, reader.pid, reader.state) for reader in found.receivers] == [
        (FAST, 29703, "active"),
        (FAST, 29704, "active"),
    ]
    session = TRADING.session(FAST)
    assert session is not None
    assert [reader.latency for reader in found.receivers] == [slot.latency for slot in session.receivers]
    assert [reader.recent for reader in found.receivers] == [slot.recent for slot in session.receivers]
    assert found.unreadable == {}


def test_a_stopped_reader_is_told() -> None:
    found = changed(
        TRADING,
        session=lambda session: dataclasses.replace(
            session, receivers=tuple(dataclasses.replace(slot, stopped=True) for slot in session.receivers)
        ),
    )
    assert {reader.state for reader in delays(found, "quotes.AAPL").receivers} == {"stopped"}


def test_only_those_who_joined_the_topic() -> None:
    found = changed(
        TRADING,
        session=lambda session: dataclasses.replace(
            session, receivers=tuple(dataclasses.replace(slot, topics=("other",)) for slot in session.receivers)
        ),
    )
    assert delays(found, "quotes.AAPL").receivers == ()
    assert list(lines(delays(found, "quotes.AAPL"))) == ["quotes.AAPL  no receiver"]


def test_what_cannot_be_read_is_told_with_its_reason() -> None:
    found = changed(
        TRADING,
        session=lambda session: dataclasses.replace(
            session, counters=NO_COUNTERS, receivers=(), reason="permission denied", alive=session.source != SLOW
        ),
    )
    told = delays(found, "quotes.MSFT")
    assert told.unreadable == {SLOW: "permission denied"}
    assert f"{SLOW}  not readable: permission denied" in list(lines(told))


def test_lines_for_people() -> None:
    found = delays(TRADING, "quotes.MSFT")
    first, recent, since, *_ = lines(dataclasses.replace(found, receivers=found.receivers[:1]))
    assert first.startswith(f"{SLOW} -> pid 29705 (ann) slow python")
    assert recent.startswith("    last 1 s ")
    assert since.startswith("    since it joined p50 ")
    for word in ("p90", "p99", "p99.9", "max", "messages"):
        assert word in since
    nothing = dataclasses.replace(found.receivers[0], recent=None, state="dead")
    first, recent, _ = lines(dataclasses.replace(found, receivers=(nothing,)))
    assert first.endswith("  dead")
    assert recent.endswith("nothing was measured (one datagram in 16 is)")


def test_the_wait_in_batches_is_a_line_of_its_own() -> None:
    counted = {"batch_wait_ns": 3_000_000, "batch_wait_max": 250_000_000, "lbm_msgs_sent": 3}
    found = changed(
        TRADING,
        session=lambda session: dataclasses.replace(session, counters={**session.counters, **counted}, per_second={}),
    )
    *_, last = lines(delays(found, "quotes.MSFT"))
    assert last.split() == [SLOW, "batch", "wait", "mean", "1", "ms", "max", "250", "ms"]
