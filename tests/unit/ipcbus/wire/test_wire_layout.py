"""The bytes that know about topics: sizes, places, and that the generated declarations are current."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from ipcbus.wire import wire_layout
from ringbuf import codegen
from ringbuf import layout as ring_layout
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from typing import Any


def end_of(kind: np.dtype[np.void], field: str) -> int:
    """The byte behind a field."""
    assert kind.fields is not None
    inner: tuple[np.dtype[Any], int] = kind.fields[field][:2]
    return inner[1] + inner[0].itemsize


@each_of("name", wire_layout.STRUCTS)
def test_fields_lie_inside_their_structure_one_behind_the_other(name: str) -> None:
    kind = wire_layout.STRUCTS[name]
    assert kind.fields is not None
    assert kind.names is not None
    places = sorted((kind.fields[field][1], end_of(kind, field)) for field in kind.names)
    assert places[-1][1] <= kind.itemsize
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
    assert all(begin % min(end - begin, 8) == 0 for begin, end in places if (end - begin) in (1, 2, 4, 8))


def test_a_recorder_is_found_where_every_other_entry_is() -> None:
    assert wire_layout.RECORDER_ENTRY.itemsize == wire_layout.REGISTRY_ENTRY.itemsize
    recorder, entry = wire_layout.RECORDER_ENTRY.fields, wire_layout.REGISTRY_ENTRY.fields
    assert recorder is not None
    assert entry is not None
    assert {name: recorder[name] for name in ("state", "since_ns", "name")} == {
        name: entry[name] for name in ("state", "since_ns", "name")
    }


@pytest.mark.parametrize("name", ["TopicLine", "RegistryHeader", "RegistryEntry"])
def test_structures_that_processes_share_are_whole_cache_lines(name: str) -> None:
    assert wire_layout.STRUCTS[name].itemsize % ring_layout.CACHE_LINE == 0


def test_a_message_header_has_the_size_that_its_constant_says() -> None:
    assert wire_layout.MESSAGE_HEADER.itemsize == wire_layout.MESSAGE_HEADER_BYTES
    assert wire_layout.MESSAGE_HEADER_BYTES % ring_layout.RECORD_ALIGN == 0


def test_topic_number_and_flags_share_one_word() -> None:
    assert wire_layout.TOPIC_MASK == 2**wire_layout.TOPIC_BITS - 1
    assert (wire_layout.FLAG_START_BATCH | wire_layout.FLAG_END_BATCH) << wire_layout.TOPIC_BITS < 2**32


def test_a_topic_name_of_full_length_fits_with_its_zero() -> None:
    assert wire_layout.REGISTRY_ENTRY["name"].itemsize == wire_layout.TOPIC_NAME_MAX + 1


def test_a_registry_is_whole_pages_and_holds_what_was_asked() -> None:
    for entries in (0, 1, 9, 10, 11, 1000):
        size = wire_layout.registry_bytes(entries)
        assert size % ring_layout.PAGE == 0
        assert size - wire_layout.REGISTRY_HEADER.itemsize >= entries * wire_layout.REGISTRY_ENTRY.itemsize


def test_the_layout_id_changes_with_every_byte_of_either_layout() -> None:
    assert wire_layout.LAYOUT_ID != ring_layout.LAYOUT_ID
    constants = {**ring_layout.CONSTANTS, **wire_layout.CONSTANTS}
    structs = {**ring_layout.STRUCTS, **wire_layout.STRUCTS}
    assert codegen.layout_id(structs, constants) == wire_layout.LAYOUT_ID
    assert codegen.layout_id(structs, {**constants, "VERSION": 99}) != wire_layout.LAYOUT_ID
    for name, kind in wire_layout.STRUCTS.items():
        grown = np.dtype(cast("Any", {**_description(kind), "itemsize": kind.itemsize + 64}))
        assert codegen.layout_id({**structs, name: grown}, constants) != wire_layout.LAYOUT_ID


def _description(kind: np.dtype[np.void]) -> dict[str, Any]:
    assert kind.names is not None
    assert kind.fields is not None
    return {
        "names": list(kind.names),
        "formats": [kind.fields[name][0] for name in kind.names],
        "offsets": [kind.fields[name][1] for name in kind.names],
    }


def test_the_generated_declarations_are_current() -> None:
    path = Path(wire_layout.__file__).with_name("_wire_layout.pxd")
    assert path.read_text() == codegen.render("ipcbus.wire.wire_layout", wire_layout.STRUCTS, wire_layout.CONSTANTS)


def test_a_registry_is_seen_without_a_copy() -> None:
    data = bytearray(wire_layout.registry_bytes(1))
    header = wire_layout.registry_view(memoryview(data))
    header["context_id"] = 0x1234
    assert data[16:18] == b"\x34\x12"
