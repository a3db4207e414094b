"""Source strings, and endpoints as a registry shows them."""

from __future__ import annotations

import dataclasses

from ipcbus.resolution.source_string import Endpoint, over_udp, source_string
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC, TRANSPORT_LBTRM, TRANSPORT_LBTRU
from tests.kit.cases import each_of

UNICAST = Endpoint("127.0.0.1", 14380)
MULTICAST = Endpoint("10.0.0.1", 14390, "224.10.10.10", 14400)


@each_of("endpoint", [UNICAST, MULTICAST, Endpoint("::1", 1), Endpoint("fe80::1", 65535, "ff15::1", 2)])
def test_an_endpoint_survives_its_text(endpoint: Endpoint) -> None:
    for each in (endpoint, dataclasses.replace(endpoint, tcp=True)):
        assert Endpoint.of(each.text()) == each


@each_of(
    "text",
    [
        "",
        "127.0.0.1",
        "host 1",
        "127.0.0.1 x",
        "tcp",
        "tcp tcp 127.0.0.1 1",
        "127.0.0.1 0",
        "127.0.0.1 65536",
        "::1 1 ff15::1",
        "::1 1 ff15::1 2 ::1 3",
    ],
)
def test_an_invalid_text_has_no_endpoint(text: str) -> None:
    assert Endpoint.of(text) is None


@each_of(
    ("transport", "endpoint", "text"),
    [
        (TRANSPORT_LBTIPC, None, "LBT-IPC:6481f8d4:20001"),
        (TRANSPORT_LBTIPC, UNICAST, "LBT-IPC:6481f8d4:20001"),
        (TRANSPORT_LBTRU, UNICAST, "LBT-RU:127.0.0.1:14380:6481f8d4"),
        (TRANSPORT_LBTRU, Endpoint("::1", 7), "LBT-RU:[::1]:7:6481f8d4"),
        (TRANSPORT_LBTRM, MULTICAST, "LBTRM:10.0.0.1:14390:6481f8d4:224.10.10.10:14400"),
        (255, None, "?:6481f8d4:20001"),
    ],
)
def test_source_strings_have_the_form_of_their_transport(transport: int, endpoint: Endpoint | None, text: str) -> None:
    assert source_string(transport, 0x6481F8D4, 20001, endpoint) == text


def test_the_twin_of_a_ring_session_is_named_like_a_session_over_udp() -> None:
    assert over_udp(TRANSPORT_LBTIPC, 0x6481F8D4, UNICAST) == "LBT-RU:127.0.0.1:14380:6481f8d4"
