from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.config import ContextOptions, Option, SourceOptions
from ipcbus.config.option_values import Refused
from tests.kit.cases import each_of

WINDOW = SourceOptions.transport_lbtsmx_transmission_window_size


def test_attribute_item_and_mapping_agree() -> None:
    values = SourceOptions({"transport": "lbtsmx"})
    assert values.transport == values["transport"] == dict(values)["transport"] == "lbtsmx"
    assert values.transport_lbtipc_id == 0
    assert len(values) == len(SourceOptions.rows)
    assert list(values) == list(SourceOptions.rows)
    assert "transport" in values
    assert "nonsense" not in values


def test_frozen() -> None:
    values = SourceOptions()
    with pytest.raises(AttributeError, match="give transport when the source is made"):
        values.transport = "lbtsmx"
    assert values.transport == "lbtipc"


def test_repr_names_what_differs() -> None:
    assert repr(SourceOptions({"transport_lbtipc_id": 7})) == "SourceOptions(transport_lbtipc_id=7)"


@each_of("text", ["lbtipc", "LBTIPC", "lbt-ipc", "LBT-IPC", "Lbt_Ipc"])
def test_transport_spellings(text: str) -> None:
    assert SourceOptions.transport.check(text) == "lbtipc"


@pytest.mark.parametrize("option", [SourceOptions.transport, SourceOptions.udp_fallback])
def test_the_list_of_transports_has_every_name_that_is_taken(option: Option[str]) -> None:
    assert option.check("tcp") == "lbttcp"
    assert option.limits().endswith("lbtru, lbtrm, lbttcp, tcp")


@each_of(
    ("text", "meant"),
    [
        ("ipc", "lbtipc"),
        ("LBT-IPX", "lbtipc"),
        ("smx", "lbtsmx"),
        ("tpc", "tcp"),
        ("udp", "lbtru, or lbtrm for multicast"),
        ("Multicast", "lbtrm"),
        ("shm", "lbtipc"),
    ],
)
def test_a_refused_choice_names_the_one_that_was_meant(text: str, meant: str) -> None:
    with pytest.raises(Refused) as caught:
        SourceOptions.transport.check(text)
    assert str(caught.value).endswith(f"; did you mean {meant}?")


def test_a_choice_like_no_other_gets_no_guess() -> None:
    with pytest.raises(Refused, match="lbttcp, tcp$"):
        SourceOptions.transport.check("zzz")


@pytest.mark.parametrize("text", ["busy_wait", "BUSY_WAIT", "busy-wait"])
def test_choice_spellings(text: str) -> None:
    assert ContextOptions.transport_lbtipc_receiver_thread_behavior.check(text) == "busy_wait"


@each_of("value", [True, False, 0, 1])
def test_bool_takes_the_spellings_of_ultra_messaging(value: object) -> None:
    checked = ContextOptions.registry_hidden.check(value)
    assert checked is bool(value)


@each_of("value", [2, -1, "true", 1.0, None])
def test_bool_refuses(value: object) -> None:
    with pytest.raises(Refused, match="true or false"):
        ContextOptions.registry_hidden.check(value)


def test_int_takes_what_counts_as_one() -> None:
    checked = SourceOptions.transport_lbtipc_id.check(np.uint16(7))
    assert checked == 7
    assert type(checked) is int


@each_of("value", [1.0, "1", True, None, b"1"])
def test_int_refuses_other_types(value: object) -> None:
    with pytest.raises(Refused, match=f"from 0 to 65535, not of type {type(value).__name__}"):
        SourceOptions.transport_lbtipc_id.check(value)


@each_of("value", [499, 65536, -1, 2**80])
def test_int_refuses_out_of_range(value: int) -> None:
    with pytest.raises(Refused, match="from 500 to 65535 bytes"):
        ContextOptions.transport_lbtipc_datagram_max_size.check(value)


@pytest.mark.parametrize("value", ["udp", "", "lbtipc "])
def test_choice_refuses(value: str) -> None:
    with pytest.raises(Refused, match="one of lbtipc, lbtsmx, lbtru, lbtrm, lbttcp"):
        SourceOptions.transport.check(value)


@pytest.mark.parametrize("value", [7, None, b"x"])
def test_text_refuses_other_types(value: object) -> None:
    with pytest.raises(Refused, match="a text"):
        ContextOptions.context_name.check(value)


def test_text_is_measured_in_bytes() -> None:
    row = Option(default="", maximum=4, meaning="Short.")
    assert row.check("abcd") == "abcd"
    with pytest.raises(Refused, match="at most 4 bytes, not 6"):
        row.check("é" * 3)


def test_text_refuses_what_cannot_be_encoded() -> None:
    with pytest.raises(Refused, match="surrogates"):
        ContextOptions.context_name.check("\ud800")


def test_text_without_limit() -> None:
    assert ContextOptions.shared_memory_group.limits() == "a text"
    assert ContextOptions.shared_memory_group.check("g" * 200) == "g" * 200


def test_number_without_limits() -> None:
    assert Option(default=1, meaning="Free.").limits() == "a whole number"


@given(st.integers(4096, 2**40))
def test_power_of_two_is_the_next_one(value: int) -> None:
    rounded = WINDOW.check(value)
    assert rounded.bit_count() == 1
    assert value <= rounded < 2 * value


@each_of(
    ("row", "text", "value"),
    [
        (ContextOptions.registry_hidden, "1", True),
        (ContextOptions.registry_hidden, "0", False),
        (ContextOptions.thread_cpu, "-1", -1),
        (ContextOptions.thread_cpu, "+07", 7),
        (ContextOptions.context_name, "Feed 7", "Feed 7"),
        (WINDOW, "5000", 8192),
    ],
)
def test_parse(row: Option[int], text: str, value: object) -> None:
    parsed = row.parse(text)
    assert parsed == value
    assert type(parsed) is row.kind


@each_of("text", ["2", "true", "", "01"])
def test_parse_bool_refuses(text: str) -> None:
    with pytest.raises(Refused, match="0 or 1"):
        ContextOptions.registry_hidden.parse(text)


@each_of("text", ["", "1.0", "0x1", "1_0", "one", "9" * 5000, "\u0661"])
def test_parse_int_refuses(text: str) -> None:
    with pytest.raises(Refused, match="from 0 to 65535"):
        SourceOptions.transport_lbtipc_id.parse(text)
