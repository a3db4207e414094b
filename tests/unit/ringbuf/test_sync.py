"""Each memory order stands where the table of sync points says.

Most of them cannot be told from weaker orders by running them: the processor of this machine may never do what a weaker
order would allow. `tests/stress/test_fence.py` runs the one of which a processor of this kind shows it.
"""

from __future__ import annotations

import itertools
import re

from tests.kit.cases import each_of
from tests.unit.sources import ROOT, files, relative

TABLE = ROOT / "ringbuf" / "_atomics.pxd"
SAME = {
    **{"barrier": "membarrier", "fence": "fence_full", "store": "store_release", "load": "load_acquire", "or": "or_"},
    "raise_release": "store_release",
}
"""Names in Python of what the table calls otherwise."""

CALL = re.compile(r"(?:_atomics|_words|_lines|wake)\.(\w+?)(?:32|64)?\(|\b(barrier)\(")
BLOCK = 4
"""Lines that a comment on a line of its own speaks of."""


def table() -> dict[str, set[str]]:
    """The orders of each sync point, by its name."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#   "):
            continue
        begin = re.match(r"#   SYNC (\w+)", line)
        name = begin[1] if begin else name
        if re.search(r"(writer|reader|joiner|driver|waiter): ", line):
            orders = re.findall(r"(?<![\w.])([a-z]+_?[a-z]*)(?=\(|,|$)", line.split(": ", 1)[1])
            found.setdefault(name, set()).update(order.strip() for order in orders)
    return found


def sites() -> list[tuple[str, str, str]]:
    """Each place, the name of its sync point, and an order that stands there."""
    found = []
    for path in files("ringbuf", "ipcbus", suffixes=(".py", ".pyx", ".pxd")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            code, mark, name = line.partition("# SYNC ")
            if not mark or path == TABLE:
                continue
            block = itertools.takewhile(lambda each: "return" not in each, lines[number + 1 : number + 1 + BLOCK])
            spoken_of = [code] if code.strip() else list(block)
            orders = [first or second for each in spoken_of for first, second in CALL.findall(each)]
            found += [(f"{relative(path)}:{number + 1}", name.strip(), SAME.get(each, each)) for each in orders]
    return found


def test_the_table_names_orders() -> None:
    assert table()["join"] == {"store", "fence_full", "load"}
    assert table()["intent"] == {"store_relaxed", "fence_release", "bytes", "fence_acquire", "load_relaxed"}
    assert len(sites()) > 30


@each_of(("place", "name", "order"), sites())
def test_the_order_is_one_of_its_sync_point(place: str, name: str, order: str) -> None:
    # Without the system call both sides fence.
    without_the_call = {"fence_full"} if name in ("park", "wait") else set()
    assert order in table()[name] | without_the_call, place


def test_every_sync_point_has_both_sides() -> None:
    """What is released somewhere is acquired somewhere."""
    places = sites()
    for name, orders in table().items():
        found = {order for _, each, order in places if each == name}
        for release, acquire in (("store_release", "load_acquire"), ("fence_release", "fence_acquire")):
            if {release, acquire} <= orders and name not in ("park", "wait"):
                assert {release, acquire} <= found, name
