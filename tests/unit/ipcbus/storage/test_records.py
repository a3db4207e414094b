from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.storage import records
from ipcbus.storage.records import frame, salvage, scan

PAYLOADS = st.lists(st.binary(max_size=40), max_size=6)


def test_the_bytes_of_a_record() -> None:
    checksum = zlib.crc32(b"\2\0\0\0ab").to_bytes(4, "little")
    assert frame(b"ab") == b"\2\0\0\0" + checksum + b"ab"


def test_a_record_has_a_longest_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PAYLOAD_MAX", 10)
    assert scan(frame(bytes(10))).damage is None
    with pytest.raises(ValueError, match="longer"):
        frame(bytes(11))
    longer = frame(bytes(10)).replace(b"\x0a", b"\x0b", 1) + bytes(1)
    assert "does not fit" in (scan(longer).damage or "")


@given(PAYLOADS)
def test_records_are_found(payloads: list[bytes]) -> None:
    data = b"".join(map(frame, payloads))
    found = scan(data)
    assert [payload for _, payload in found.records] == payloads
    assert [data[at : at + 8] for at, _ in found.records] == [frame(payload)[:8] for payload in payloads]
    assert (found.good_end, found.damage, found.good_follow) == (len(data), None, False)
    assert salvage(data) == payloads


@given(PAYLOADS, st.data())
def test_a_torn_tail_ends_the_scan(payloads: list[bytes], draw: st.DataObject) -> None:
    data = b"".join(map(frame, [*payloads, b"last"]))
    length = len(data) - draw.draw(st.integers(1, len(frame(b"last")) - 1))
    found = scan(data[:length])
    assert [payload for _, payload in found.records] == payloads
    assert found.good_end == len(data) - len(frame(b"last"))
    assert found.damage
    assert not found.good_follow


@given(PAYLOADS, PAYLOADS, st.data())
def test_damage_in_the_middle_is_told_from_a_torn_tail(
    before: list[bytes], after: list[bytes], draw: st.DataObject
) -> None:
    bad = bytearray(frame(b"payload"))
    at = draw.draw(st.integers(4, len(bad) - 1))  # not in the length
    bad[at] ^= draw.draw(st.integers(1, 255))
    data = b"".join(map(frame, before)) + bad + b"".join(map(frame, after))
    found = scan(data)
    assert [payload for _, payload in found.records] == before
    assert found.good_follow == bool(after)
    assert salvage(data) == [*before, *after]


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    found = scan(data)
    assert found.good_end <= len(data)
    assert (found.damage is None) == (found.good_end == len(data))
    salvage(data)


def test_zeros_are_no_records() -> None:
    found = scan(bytes(1000))
    assert (found.records, found.good_end, found.good_follow) == ([], 0, False)
    assert salvage(bytes(1000)) == []
