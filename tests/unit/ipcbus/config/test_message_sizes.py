from __future__ import annotations

import re

import pytest

from ipcbus.config import Config, SourceOptions
from ipcbus.config.message_sizes import HEADERS, with_message_max
from ipcbus.errors import ConfigError
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER, RECORD_TRAILER
from tests.kit.cases import each_of

MIB = 2**20
FRAME = 1920 * 1080 * 3


def sizes(**options: object) -> tuple[str, int, int]:
    values = Config({}).values("source", "t", **options)
    return (
        values.transport,
        values.transport_lbtsmx_datagram_max_size,
        values.transport_lbtsmx_transmission_window_size,
    )


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as raised:
        sizes(**options)
    return str(raised.value)


def test_without_a_longest_message_nothing_changes() -> None:
    assert with_message_max({"transport": "lbtru"}) == {"transport": "lbtru"}
    assert sizes(message_max=0, messages_in_flight=9) == ("lbtipc", 8192, MIB)


@each_of(
    ("longest", "in_flight", "window"),
    [(100, 4, MIB), (FRAME, 4, 32 * MIB), (FRAME, 2, 16 * MIB), (4 * FRAME, 4, 128 * MIB), (2**30 - 1024, 2, 2**31)],
)
def test_the_ring_holds_the_messages_in_flight(longest: int, in_flight: int, window: int) -> None:
    transport, datagram, found = sizes(message_max=longest, messages_in_flight=in_flight)
    assert (transport, found) == ("lbtsmx", window)
    assert datagram >= longest + 16
    assert in_flight * (RECORD_HEADER + datagram + RECORD_TRAILER + RECORD_ALIGN) <= window


def test_lengths_that_are_about_the_same_have_the_same_sizes() -> None:
    assert sizes(message_max=FRAME) == sizes(message_max=FRAME - 1000) == sizes(message_max=7 * MIB)


def test_sizes_that_are_given_hold_if_they_are_large_enough() -> None:
    window, datagram = "transport_lbtsmx_transmission_window_size", "transport_lbtsmx_datagram_max_size"
    assert sizes(message_max=FRAME, **{datagram: 7_000_000}) == ("lbtsmx", 7_000_000, 32 * MIB)
    assert sizes(message_max=FRAME, **{window: 64 * MIB})[2] == 64 * MIB
    for name in (window, datagram):
        text = refusal(message_max=FRAME, **{name: 4 * MIB})
        assert f"option {name} (scope source) = {4 * MIB} is too small for message_max = {FRAME}" in text
        least = int(re.findall(r"at least (\d+)", text)[0])
        assert least >= FRAME + HEADERS
        sizes(message_max=FRAME, **{name: least})


@pytest.mark.parametrize("transport", ["lbtipc", "lbtru", "tcp"])
def test_other_transports_contradict_it(transport: str) -> None:
    assert "Leave transport out" in refusal(message_max=FRAME, transport=transport)
    with pytest.raises(ConfigError, match="message_max"):
        Config({"source": {"transport": transport}}).values("source", "t", message_max=FRAME)


def test_source_pacing_contradicts_it() -> None:
    text = refusal(message_max=FRAME, transport_lbtipc_behavior="source_paced")
    assert f"options message_max = {FRAME} and transport_lbtipc_behavior" in text
    assert SourceOptions.message_max.special_zero
