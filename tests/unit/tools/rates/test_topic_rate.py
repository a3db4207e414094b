from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from ipcbus.stats.snapshot_model import NO_COUNTERS
from ipcbus_tools.commands import bw_command, hz_command
from ipcbus_tools.rates.topic_rate import TopicMeter, figure, lines
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import FAST, SECOND, SLOW, TRADING, changed

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot, SessionStats, SourceStats

TOPIC = "quotes.AAPL"
BEGIN = 1000


def sending(seconds: float, *counts: int | None, start_ns: int = 7, other: SourceStats | None = None) -> DomainSnapshot:
    """A domain whose first session has published so many messages of the topic, and the second one so many, ...

    None stands for a session that cannot be read.
    """
    by_source = dict(zip((FAST, SLOW), counts, strict=False))

    def change(session: SessionStats) -> SessionStats:
        count = by_source.get(session.source)
        if session.source not in by_source:
            return dataclasses.replace(session, sources=())
        counters = MappingProxyType(
            {} if count is None else {"lbm_msgs_sent": count, "sequence_next": count, "bytes_sent": 8 * count}
        )
        source = dataclasses.replace(session.sources[0], topic=TOPIC, counters=counters)
        return dataclasses.replace(
            session,
            sources=(source,),
            counters=NO_COUNTERS if count is None else session.counters,
            reason="it belongs to bob" if count is None else "",
            start_ns=start_ns,
            read_ns=TRADING.read_ns + round(seconds * SECOND),
        )

    return changed(TRADING, session=change, later_s=seconds)


def test_one_source() -> None:
    meter = TopicMeter(TOPIC, 10)
    first = meter.add(sending(0, BEGIN))
    assert first.flow is None
    assert first.sources[0].flow is None
    found = meter.add(sending(2, BEGIN + 500))
    assert found.flow is not None
    assert (found.flow.messages.mean, found.flow.bytes.mean, found.flow.message_bytes) == (250, 2000, 8)
    assert [source.source for source in found.sources] == [FAST]
    assert found.sources[0].flow == found.flow


def test_several_sources_and_their_sum() -> None:
    meter = TopicMeter(TOPIC, 10)
    meter.add(sending(0, BEGIN, 0))
    found = meter.add(sending(1, BEGIN + 30, 12))
    assert found.flow is not None
    assert found.flow.messages.mean == 42
    assert [source.flow.messages.mean for source in found.sources if source.flow] == [30, 12]


def test_source_that_restarts_and_one_that_begins_count_from_zero() -> None:
    meter = TopicMeter(TOPIC, 10)
    meter.add(sending(0, BEGIN))
    found = meter.add(sending(1, 40, start_ns=8))
    assert found.flow is not None
    assert found.flow.messages.mean == 40
    found = meter.add(sending(2, 40, 7, start_ns=8))
    assert found.flow is not None
    assert found.flow.messages.now == 7
    assert [source.flow.count for source in found.sources if source.flow] == [40, 7]


def test_contexts_with_the_same_source_string_are_kept_apart() -> None:
    def both(seconds: float, *counts: int) -> DomainSnapshot:
        found = sending(seconds, *counts)
        sessions = [
            dataclasses.replace(session, source=FAST, context_id=session.context_id + (session.source == SLOW))
            for session in found.sessions
            if session.source in (FAST, SLOW)
        ]
        return dataclasses.replace(found, contexts=(dataclasses.replace(found.contexts[0], sessions=tuple(sessions)),))

    meter = TopicMeter(TOPIC, 10)
    meter.add(both(0, BEGIN, 5 * BEGIN))
    found = meter.add(both(1, BEGIN + 30, 5 * BEGIN + 12))
    assert [source.flow.messages.mean for source in found.sources if source.flow] == [30, 12]
    assert found.flow is not None
    assert found.flow.messages.mean == 42


def test_around_the_end_of_the_words() -> None:
    meter = TopicMeter(TOPIC, 10)
    meter.add(sending(0, 2**64 - 10))
    found = meter.add(sending(1, 20))
    assert found.flow is not None
    assert (found.flow.messages.mean, found.flow.message_bytes) == (30, 8)


def test_what_could_not_be_read_before_counts_from_when_it_can() -> None:
    meter = TopicMeter(TOPIC, 10)
    assert meter.add(sending(0, None)).flow is None
    hidden = meter.add(sending(1, None))
    assert hidden.flow is None
    assert (hidden.sources[0].state, hidden.sources[0].reason) == ("not readable", "it belongs to bob")
    meter.add(sending(2, BEGIN))
    found = meter.add(sending(3, BEGIN + 20))
    assert found.flow is not None
    assert found.flow.messages.now == 20
    assert found.sources[0].flow is not None
    assert found.sources[0].flow.messages.mean == 20


def test_all_sources_gone() -> None:
    meter = TopicMeter(TOPIC, 10)
    meter.add(sending(0, BEGIN))
    meter.add(sending(1, BEGIN + 100))
    found = meter.add(sending(2))
    assert found.sources == ()
    assert found.flow is not None
    assert found.flow.messages.now == 0
    assert list(lines(found, hz_command.describe)) == [f"{TOPIC}  no source"]


def test_lines_for_people() -> None:
    meter = TopicMeter(TOPIC, 10)
    meter.add(sending(0, BEGIN, None))
    found = meter.add(sending(1, BEGIN + 1500, None))
    total, one, other = lines(found, hz_command.describe)
    assert total == f"{TOPIC}  1,500 msg/s  mean 1,500  min 1,500  max 1,500  stddev 0  1,500 messages in 1 s"
    assert one.startswith(f"    {FAST} pid ")
    assert other.endswith("  not readable: it belongs to bob")
    (alone,) = lines(dataclasses.replace(found, sources=found.sources[:1]), bw_command.describe)
    assert "11.7 KiB/s" in alone
    assert "8 B a message" in alone
    (nothing,) = lines(dataclasses.replace(found, flow=None, sources=found.sources[:1]), hz_command.describe)
    assert nothing == f"{TOPIC}  not readable"


@each_of(
    ("value", "text"), [(0.1, "0.1"), (0.01234, "0.01234"), (0, "0"), (999.9, "999.9"), (20123456.7, "20,123,457")]
)
def test_figure(value: float, text: str) -> None:
    assert figure(value) == text


def test_a_message_in_fragments_counts_once_with_its_own_size() -> None:
    def sent(seconds: float, messages: int) -> DomainSnapshot:
        counted = {
            "lbm_msgs_sent": messages,
            "bytes_sent": messages * 1_000_000,
            "sequence_next": 16 * messages,
            "fragments_sent": 16 * messages,
            "msgs_fragmented": messages,
        }

        def change(session: SessionStats) -> SessionStats:
            source = dataclasses.replace(session.sources[0], topic=TOPIC, counters=MappingProxyType(counted))
            sources = (source,) if session.source == FAST else ()
            return dataclasses.replace(session, sources=sources, read_ns=TRADING.read_ns + round(seconds * SECOND))

        return changed(TRADING, session=change, later_s=seconds)

    meter = TopicMeter(TOPIC, 10)
    meter.add(sent(0, 16))
    flow = meter.add(sent(1, 32)).flow
    assert flow is not None
    assert (flow.messages.mean, flow.bytes.mean, flow.message_bytes) == (16, 16_000_000, 1_000_000)
