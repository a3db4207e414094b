from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringbuf
from ringbuf import codegen, layout
from ringbuf.ring import bucket
from tests.kit.cases import each_of
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

GENERATED = Path(ringbuf.__file__).with_name("_layout.pxd")

FIELDS = [(name, field) for name, dtype in layout.STRUCTS.items() for field in dtype.names or ()]


def fields_of(name: str) -> Mapping[str, Any]:
    """Format and offset of each field of a struct."""
    return layout.STRUCTS[name].fields or {}


def rows(name: str) -> list[tuple[str, Any, int]]:
    """The fields of a struct as `layout.struct` takes them."""
    fields = fields_of(name)
    return [(field, fields[field][0], fields[field][1]) for field in fields]


def id_with(name: str, changed: list[tuple[str, Any, int]], size: int) -> int:
    """The layout id if one struct were another."""
    return codegen.layout_id({**layout.STRUCTS, name: layout.struct(size, changed)}, layout.CONSTANTS)


def c_part() -> str:
    """The C text inside the generated file."""
    return GENERATED.read_text().split('"""')[1]


def compile_c(text: str) -> subprocess.CompletedProcess[str]:
    """Has the C compiler check a text."""
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    return subprocess.run(
        [*compiler, "-std=c11", "-fsyntax-only", "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_generated_file_is_what_the_layout_describes() -> None:
    assert GENERATED.read_text() == codegen.render("ringbuf.layout", layout.STRUCTS, layout.CONSTANTS)


def test_check_tells_a_stale_generated_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "_layout.pxd"
    monkeypatch.setattr(sys, "argv", ["layout", "--check"])
    with pytest.raises(SystemExit, match="run: python -m somewhere"):
        codegen.main("somewhere", {target: "new"})
    target.write_text("old")
    with pytest.raises(SystemExit, match="run: python -m somewhere"):
        codegen.main("somewhere", {target: "new"})
    monkeypatch.setattr(sys, "argv", ["layout"])
    codegen.main("somewhere", {target: "new"})
    monkeypatch.setattr(sys, "argv", ["layout", "--check"])
    codegen.main("somewhere", {target: "new"})
    assert target.read_text() == "new"


@each_of(("name", "field"), FIELDS)
def test_layout_id_changes_with_every_field(name: str, field: str) -> None:
    size = layout.STRUCTS[name].itemsize
    before = rows(name)
    index = [row[0] for row in before].index(field)
    _, kind, offset = before[index]
    ids = {layout.LAYOUT_ID}
    for other in [(field + "_", kind, offset), (field, kind, offset + 1), (field, "<i2", offset)]:
        ids.add(id_with(name, [*before[:index], other, *before[index + 1 :]], size + 64))
    ids.add(id_with(name, before[:index] + before[index + 1 :], size))
    assert len(ids) == 5


@each_of("name", layout.STRUCTS)
def test_layout_id_changes_with_the_size_of_a_struct(name: str) -> None:
    assert id_with(name, rows(name), layout.STRUCTS[name].itemsize + 8) != layout.LAYOUT_ID


@each_of("name", layout.CONSTANTS)
def test_layout_id_changes_with_every_constant(name: str) -> None:
    changed = {**layout.CONSTANTS, name: layout.CONSTANTS[name] + 1}
    assert codegen.layout_id(layout.STRUCTS, changed) != layout.LAYOUT_ID


def test_every_struct_and_field_has_its_static_assert() -> None:
    text = c_part()
    for name, dtype in layout.STRUCTS.items():
        assert f"_Static_assert(sizeof(ipcbus_{name}) == {dtype.itemsize}," in text
    for name, field in FIELDS:
        offset = fields_of(name)[field][1]
        assert f"_Static_assert(offsetof(ipcbus_{name}, {field}) == {offset}," in text


def test_a_compiler_that_sees_another_offset_stops() -> None:
    right = compile_c(c_part())
    assert right.returncode == 0, right.stderr
    wrong = re.sub(r"== (\d+),", lambda found: f"== {int(found[1]) + 1},", c_part())
    asserts = len(FIELDS) + len(layout.STRUCTS)
    assert compile_c(wrong).stderr.lower().count("static assertion failed") == asserts


@each_of("name", layout.STRUCTS)
def test_fields_are_aligned_and_do_not_overlap(name: str) -> None:
    end = 0
    for field, kind, offset in sorted(rows(name), key=lambda row: int(row[2])):
        base = kind.subdtype[0] if kind.subdtype else kind
        assert offset >= end, field
        assert base.kind == "S" or offset % base.itemsize == 0, field
        end = offset + kind.itemsize
    assert end <= layout.STRUCTS[name].itemsize


@each_of(
    ("name", "lines"),
    [
        ("RingHeader", ["magic", "tail", "intent", "closed", "send_blocked", "pid"]),
        ("ControlHeader", ["magic", "parked", "writer_waits", "channel_calls"]),
        ("Slot", ["state", "pid", "msgs_rcved", "parks", "latency"]),
        ("PipeQueue", ["written", "read"]),
    ],
)
def test_what_different_sides_write_lies_on_different_cache_lines(name: str, lines: list[str]) -> None:
    fields = fields_of(name)
    assert len({fields[field][1] // layout.CACHE_LINE for field in lines}) == len(lines)
    assert layout.STRUCTS[name].itemsize % layout.CACHE_LINE == 0


def test_bucket_edges_begin_at_zero_and_rise() -> None:
    edges = layout.bucket_edges()
    assert edges.shape == (layout.HISTOGRAM_BUCKETS,)
    assert edges[0] == 0
    assert (np.diff(edges.astype(np.int64)) > 0).all()


def test_compiled_bucket_agrees_with_the_edges_at_every_edge() -> None:
    for index, edge in enumerate(layout.bucket_edges().tolist()):
        assert bucket(edge) == index
        assert edge == 0 or bucket(edge - 1) == index - 1
    assert bucket(2**64 - 1) == layout.HISTOGRAM_BUCKETS - 1


@given(st.integers(0, 2**64 - 1) | st.integers(0, 2**40))
def test_compiled_bucket_agrees_with_the_edges(ns: int) -> None:
    assert bucket(ns) == int(np.searchsorted(layout.bucket_edges(), np.uint64(ns), side="right")) - 1


@given(st.integers(0, 1 << 40), st.sampled_from([8, 64, 4096]))
def test_round_up_gives_the_next_multiple(value: int, step: int) -> None:
    rounded = layout.round_up(value, step)
    assert rounded % step == 0
    assert value <= rounded < value + step


@given(st.integers(1, 1 << 40))
def test_ring_capacity_is_the_next_power_of_two_from_a_page_on(window: int) -> None:
    capacity = layout.ring_capacity(window)
    assert capacity.bit_count() == 1
    assert capacity >= max(window, layout.PAGE)
    assert capacity == layout.PAGE or capacity < 2 * window


@given(st.integers(0, 1 << 16), st.integers(1, layout.SLOTS_MAX))
def test_parts_of_the_objects_follow_each_other(user: int, slots: int) -> None:
    assert layout.data_offset(user) % layout.PAGE == 0
    assert layout.data_offset(user) >= layout.RING_HEADER.itemsize + user
    assert layout.slots_offset(user) % layout.CACHE_LINE == 0
    assert layout.slots_offset(user) >= layout.CONTROL_HEADER.itemsize + user
    assert layout.control_bytes(slots, user) >= layout.slots_offset(user) + slots * layout.SLOT.itemsize
    assert layout.control_bytes(slots, user) % layout.PAGE == 0


@each_of("name", layout.STRUCTS)
def test_field_offset_is_where_the_field_begins(name: str) -> None:
    struct = layout.STRUCTS[name]
    data = np.zeros((), struct)
    for field in struct.names or ():
        assert layout.field_offset(struct, field) == data[field].__array_interface__["data"][0] - data.ctypes.data


@pytest.mark.parametrize("name", ["PipeHeader", "PipeQueue"])
def test_the_page_of_the_control_channel_has_the_offsets(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "control-channel.md").read_text()
    table = page.split(f"| {name} |")[1].split("\n\n")[0]
    rows_there = [(field, int(at), int(size)) for field, at, size in re.findall(r"`(\w+)` \| (\d+) \| (\d+)", table)]
    assert rows_there == [(field, at, np.dtype(kind).itemsize) for field, kind, at in rows(name)]


def test_the_page_of_the_control_channel_has_the_states() -> None:
    page = (ROOT / "docs" / "reference" / "control-channel.md").read_text()
    states = {name: value for name, value in re.findall(r"\b([A-Z]+) \((\d)\)", page)}
    assert states == {
        name.removeprefix("CHANNEL_"): str(value)
        for name, value in layout.CONSTANTS.items()
        if name.startswith("CHANNEL_") and not name.endswith("_SHIFT")
    }
