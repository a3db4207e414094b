"""Return addresses: any values come back, any bytes are one or none."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from ipcbus.wire.return_address import DOMAIN_MAX, ReturnAddress, pack, unpack
from ipcbus.wire.transport_names import TRANSPORT_LBTIPC, TRANSPORT_LBTRM, TRANSPORT_LBTRU, TRANSPORT_LBTSMX
from tests.kit.cases import each_of

RINGS, UDP = (TRANSPORT_LBTIPC, TRANSPORT_LBTSMX), (TRANSPORT_LBTRU, TRANSPORT_LBTRM)
PLACES = [("10.1.2.3", 14380), ("::1", 1), ("fe80::12", 65535)]
WORD = st.integers(1, 0xFFFFFFFF)

domains = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=DOMAIN_MAX).filter(
    lambda text: len(text.encode()) <= DOMAIN_MAX
)


@st.composite
def addresses(draw: st.DrawFn) -> ReturnAddress:
    transport = draw(st.sampled_from([*RINGS, *UDP]))
    place = draw(st.sampled_from(PLACES if transport in UDP else [("", 0), *PLACES]))
    numbers = draw(WORD), draw(st.integers(0, 0xFFFFFFFF)), draw(st.integers(0, (1 << 64) - 1))
    return ReturnAddress(draw(domains), draw(st.integers(1, (1 << 64) - 1)), transport, *numbers, *place)


ONE = ReturnAddress("default", 7, TRANSPORT_LBTRU, 1, 2, 3, "10.1.2.3", 14380)


@given(addresses())
def test_what_is_packed_comes_back(address: ReturnAddress) -> None:
    assert unpack(pack(address)) == address


@given(addresses(), st.data())
def test_changed_bytes_are_another_address_or_none(address: ReturnAddress, data: st.DataObject) -> None:
    changed = bytearray(pack(address))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    found = unpack(bytes(changed))
    event(f"an address: {found is not None}")
    if found is not None:
        assert pack(found) == bytes(changed)


@given(st.binary(max_size=120))
def test_any_bytes_are_harmless(data: bytes) -> None:
    found = unpack(data)
    assert found is None or pack(found) == data


@each_of("cut", [0, 1, 29, 30, 33, 40])
def test_a_part_of_one_is_none(cut: int) -> None:
    assert unpack(pack(ONE)[:cut]) is None
    assert unpack(pack(ONE) + b"x") is None


def test_another_version_is_refused() -> None:
    assert unpack(b"\2" + pack(ONE)[1:]) is None
