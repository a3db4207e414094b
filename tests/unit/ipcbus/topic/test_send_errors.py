"""The errors of sends: each names the topic, the value and the cure."""

from __future__ import annotations

import numpy as np
import pytest

from ipcbus.config.options.source_options import SourceOptions
from ipcbus.errors import MessageTooLarge
from ipcbus.topic import send_errors
from ipcbus.wire.wire_layout import MESSAGE_MAX
from tests.kit.cases import each_of


@each_of(("length", "bytes_"), [(0, 0), (7, 7), (np.int64(9), 9), (MESSAGE_MAX, MESSAGE_MAX)])
def test_a_length_is_a_whole_number(length: object, bytes_: int) -> None:
    assert send_errors.checked_length("t", length, 100, in_fragments=True) == bytes_


@each_of(
    ("length", "kind"),
    [
        (-1, ValueError),
        (1.5, TypeError),
        ("7", TypeError),
        (True, TypeError),
        (None, TypeError),
        (MESSAGE_MAX + 1, MessageTooLarge),
    ],
)
def test_other_lengths_are_refused(length: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="topic 't': acquire"):
        send_errors.checked_length("t", length, 100, in_fragments=True)


def test_an_array_of_objects_is_refused() -> None:
    send_errors.check_references(np.zeros(3), "send_many")
    for array in (np.array([object()]), memoryview(np.array([object()]))):
        with pytest.raises(TypeError, match="holds references to objects; give"):
            send_errors.check_references(array, "send_many")


def test_a_long_message_is_split_or_sent_over_a_transport_with_fragments() -> None:
    assert "split it" in str(send_errors.too_large("t", 1 << 31, 100, in_fragments=True))
    assert "use transport lbtipc" in str(send_errors.too_large("t", 101, 100, in_fragments=False))


@pytest.mark.parametrize("in_fragments", [False, True])
def test_no_text_advises_a_message_max_that_the_option_refuses(in_fragments: bool) -> None:
    longest = SourceOptions.message_max.maximum
    assert longest is not None
    for length, offered in ((longest, True), (longest + 1, False)):
        in_place = send_errors.too_large_in_place("t", length, 100, in_fragments=in_fragments)
        assert (f"message_max={length}" in str(in_place)) == offered
        assert "use send()" in str(in_place)
        if not in_fragments:
            assert (
                f"message_max={length}" in str(send_errors.too_large("t", length, 100, in_fragments=False))
            ) == offered


def test_a_reservation_that_is_too_long_names_the_limit_that_it_exceeds() -> None:
    in_datagrams = str(send_errors.too_large_in_place("t", 101, 100, in_fragments=True))
    assert "exceeds 100 bytes, the longest datagram of its session" in in_datagrams
    alone = str(send_errors.too_large_in_place("t", 101, 100, in_fragments=False))
    assert "exceeds message_max = 100 of its source; a message" in alone


def test_an_item_that_is_not_bytes_is_named_by_its_index() -> None:
    assert "encode it first" in str(send_errors.not_bytes("t", "text"))
    assert "message 3 of send_many: 7 is of type int" in str(send_errors.not_bytes("t", 7, 3))


@pytest.mark.parametrize(("with_context", "cure"), [(False, "ctx.source"), (True, "make a new Context")])
def test_a_closed_source_says_what_to_make(with_context: bool, cure: str) -> None:
    assert cure in str(send_errors.closed("t", with_context=with_context))
