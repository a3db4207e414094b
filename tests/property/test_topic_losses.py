"""However a source-paced ring overtakes its reader: what was sent came, or was reported lost, once and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.delivery.sink import Sink
from tests.kit.bus import fresh_domain
from tests.kit.payload import Ledger, balanced, body
from tests.kit.sessions import SOURCE_PACED, Pair

step = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 40), st.sampled_from([16, 64, 1000, 8000])),
    st.tuples(st.just("lap"), st.integers(9, 30), st.just(8000)),
    st.tuples(st.just("poll"), st.integers(1, 50), st.just(0)),
    st.tuples(st.just("check"), st.just(0), st.just(0)),
)


@settings(max_examples=80)
@given(st.lists(step, max_size=40), st.sampled_from([2, 5, 1000]))
def test_sent_is_delivered_plus_lost(todo: list[tuple[str, int, int]], burst: int) -> None:
    pair = Pair(fresh_domain(), **SOURCE_PACED)
    source, advert = pair.topic("t")
    session = pair.join()
    ledger, now_ns = Ledger(), 0
    sink = Sink(ledger.enter, 1)
    pair.receive(session, advert, sink, delivery_control_maximum_burst_loss=burst)
    for what, count, size in todo:
        if what in ("send", "lap"):
            for _ in range(count):
                source.send(body(source.sequence_number + 1, size), flush=what == "lap")
        elif what == "poll":
            session.demux.poll_once(count)
        else:
            session.check(now_ns := now_ns + 1_000_000_000)
    source.flush()
    sent = source.sequence_number + 1
    session.drain()
    session.finish()
    balanced(ledger, sent)
    assert sink.lost == ledger.lost == session.counters()["lost"]
    assert sink.delivered == ledger.delivered
    assert ledger.ended == (sent > 0)
    pair.close()
