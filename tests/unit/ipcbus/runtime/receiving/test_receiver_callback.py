"""What happens to losses that no callback and no pull gets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ipcbus import MessageType
from ipcbus.delivery.received_message import Origin, event
from ipcbus.delivery.sink import Sink
from ipcbus.runtime.receiving.receiver_callback import ReceiverCallback, receiver_callback

ORIGIN = Origin("quotes", "LBT-IPC:1:1")
LOSS, BURST = MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST


class NoFailures:
    def failed(self, sink: Sink, error: BaseException) -> None:
        raise error


def sink_of(callback: ReceiverCallback) -> Sink:
    sink = Sink(callback.function, 100, takes=callback.takes, events=callback.events)
    callback.watch_losses(sink)
    return sink


@pytest.mark.parametrize("given", [{"on_data": print}, {"on_view": print}, {"on_message": print}, {}])
def test_a_loss_without_an_event_is_counted_and_logged(
    given: dict[str, Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"on_message": None, "on_data": None, "on_view": None, **given}
    sink = sink_of(receiver_callback(**chosen, events=False))
    with caplog.at_level(logging.WARNING, "ipcbus"):
        sink.event(event(ORIGIN, MessageType.BOS, -1, -1), NoFailures())
        sink.event(event(ORIGIN, BURST, 5, 7), NoFailures())
        for number in range(8, 108):
            sink.event(event(ORIGIN, LOSS, number, number), NoFailures())
        sink.event(event(ORIGIN, MessageType.EOS, -1, -1), NoFailures())
    assert (sink.lost, sink.events, len(sink.queue)) == (103, 103, 0)
    assert capsys.readouterr().out == ""
    found = [record.getMessage() for record in caplog.records]
    assert [text.split(" in all")[0].split(", ")[-1] for text in found] == ["3", "6", "12", "24", "48", "96"]
    assert found[0].startswith("topic 'quotes': messages 5 to 7 from LBT-IPC:1:1 are lost, 3 in all")


def test_a_loss_that_comes_as_an_event_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    sink = sink_of(receiver_callback(None, None, None, events=True))
    with caplog.at_level(logging.WARNING, "ipcbus"):
        sink.event(event(ORIGIN, LOSS, 5, 5), NoFailures())
    assert (sink.lost, len(sink.queue), caplog.records) == (1, 1, [])
