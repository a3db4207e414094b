"""What the tables of a run become in `README.md` and `docs/explanation/performance.md`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks import form_rows, groups, instructions, peers, rows
from benchmarks import step_rows as steps
from benchmarks.tables import Figures, brief, judge, markdown, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.groups import Group

_README: Final = [
    ("**ipcbus**, `send_many` → `receive_into`", rows.MANY, ""),
    ("**ipcbus**, callback, LBT-IPC with batching, spinning", rows.COUNTED_IPC, ""),
    ("**ipcbus**, callback, LBT-SMX, spinning", rows.COUNTED_SMX, rows.ECHO),
    *(
        (peer.name.replace("ipcbus", "**ipcbus**"), peers.rate_name(peer), peers.trip_name(peer))
        for peer in peers.PEERS
    ),
    ("the same ring in C, one message at a time, spinning", rows.RING, rows.RING_TRIP),
]


def parts(wanted: list[Group], about: dict[str, str], figures: Figures) -> dict[str, str]:
    """Returns what stands between the marks, by their names; only what was measured in full."""
    found = {"machine": "\n".join(f"- {key}: {value.replace('*', '')}" for key, value in about.items())}
    whole = {group.key: len(group.rows) for group in groups.EVERY}
    found |= {group.key: markdown(group, figures) for group in wanted if len(group.rows) == whole[group.key]}
    if all(name in figures for _, *names in _README for name in names if name):
        lines = [
            [label, brief(figures[rate].value(), "msg/s").removesuffix("msg/s"), _trip(trip, figures)]
            for label, rate, trip in _README
        ]
        found["readme"] = table(["bus", "messages a second", "round trip"], lines) + (
            f"\n\nAll rows are from one run ({about['cpu']}, {about['system']}, {about['python']})."
        )
    if all(row.name in figures for group in groups.MAIN for row in group.rows):
        found["missed"] = _missed(figures)
        found["parts"] = "\n\n".join(_sums(figures))
    known = json.loads(instructions.TABLE.read_text())
    counts = [[name, f"{count:,.0f}"] for name, count in known["instructions"].items()]
    found["instructions"] = table([f"a message or an idle call ({known['toolchain']})", "instructions"], counts)
    return found


def _missed(figures: Figures) -> str:
    """The rows that miss what they must reach."""
    lines = []
    for row in groups.BY_NAME.values():
        if row.name in figures and (judged := judge(row, figures)).verdict == "MISSED":
            ratio = f"{judged.ratio:.3g}" if row.is_ratio and judged.ratio is not None else ""
            lines.append([row.name, brief(judged.value, row.unit), ratio, judged.budget])
    return table(["row", "median", "ratio", "must"], lines) if lines else "None."


def _trip(name: str, figures: Figures) -> str:
    return brief(figures[name].value(), "ns") if name else ""


# ---------------------------------------------------------------------------------------- sums


@dataclass(frozen=True, slots=True)
class _Sum:
    """What the time of a row is made of.

    Attributes:
        row: its name.
        parts: what it is made of: a text, the name of a row in ns, and how often it counts.
        rest: what the time is that no part explains.
    """

    row: str
    parts: tuple[tuple[str, str, float], ...]
    rest: str


_LINES: Final = "the lines of the ring come from the other processor, waiting for the sender"
_WORDS: Final = "the ring's other words (positions, the sleepers' flag) change hands for each message"
_COLD: Final = "doorbell and epoll instead of a futex; caches that are cold behind a wake-up"
_BOTH: Final = (("two times send", steps.SEND, 2), ("two turns with a callback", steps.EMPTY_CALLBACK, 2))
_SUMS: Final = (
    _Sum(
        form_rows.SEND_RECEIVE,
        (("send", steps.SEND, 1), ("receive(0)", steps.TAKE, 1)),
        "the parts run in bursts, the row in turn",
    ),
    _Sum(
        form_rows.RECEIVE,
        (("receive(0)", steps.TAKE, 1), ("m.type is DATA", steps.TYPE, 1), ("m.data", steps.BYTES, 1)),
        _LINES,
    ),
    _Sum(
        form_rows.FOR,
        (("the step of the loop", steps.ITERATE, 1), ("m.type is DATA", steps.TYPE, 1), ("m.data", steps.BYTES, 1)),
        _LINES,
    ),
    _Sum(
        form_rows.RECEIVE_MANY,
        (
            ("receive_many", steps.TAKE_MANY, 1),
            ("the loop", steps.LOOP, 1),
            ("m.type is DATA", steps.TYPE, 1),
            ("m.data", steps.BYTES, 1),
        ),
        _LINES,
    ),
    _Sum(
        form_rows.CALLBACK,
        (("the turn", steps.EMPTY_CALLBACK, 1), ("m.type is DATA", steps.TYPE, 1), ("m.data", steps.BYTES, 1)),
        _LINES,
    ),
    _Sum(
        form_rows.DISPATCH,
        (
            *(("the turn, into the queue", steps.QUEUED, 1), ("dispatch with its callback", steps.DISPATCHED, 1)),
            *(("m.type is DATA", steps.TYPE, 1), ("m.data", steps.BYTES, 1)),
        ),
        _LINES,
    ),
    _Sum(
        "receive(), LBT-SMX",
        (
            *(
                ("two times send", steps.SEND, 2),
                ("two times receive", steps.TAKE, 2),
                ("m.type is DATA", steps.TYPE, 2),
            ),
            *(("m.data", steps.BYTES, 2), ("the ring in C, there and back", rows.RING_TRIP, 1)),
            (
                "an idle look on each side that just misses the message, on average half of one",
                form_rows.IDLE_RECEIVE,
                1,
            ),
        ),
        _WORDS,
    ),
    _Sum(
        rows.ECHO,
        (("the ring in C, there and back", rows.RING_TRIP, 1), *_BOTH, ("m.data", steps.BYTES, 2)),
        f"the clock, {_WORDS}",
    ),
    _Sum(
        rows.PEND_TRIP,
        (("the futex ping-pong: two wake-ups", rows.FUTEX_TRIP, 1), *_BOTH, ("m.data", steps.BYTES, 2)),
        _COLD,
    ),
    _Sum(
        form_rows.ASLEEP_EMBEDDED,
        (("half of the futex ping-pong: one wake-up", rows.FUTEX_TRIP, 0.5), *_BOTH, ("m.data", steps.BYTES, 1)),
        f"the interpreter lock; {_COLD}",
    ),
)


def _sums(figures: Figures) -> Iterator[str]:
    """Yields a table of Markdown for each; the parts and the rest add up to the row."""
    for each in _SUMS:
        total = figures[each.row].value()
        values = [figures[name].value() for _, name, _ in each.parts]
        if total is None or any(value is None for value in values):
            continue
        whole = total if groups.BY_NAME[each.row].unit == "ns" else 1e9 / total
        lines = []
        left = whole
        for (text, _, times), value in zip(each.parts, values, strict=True):
            part = (value or 0) * times
            left -= part
            lines.append([text, f"{part:.0f} ns"])
        lines.append([f"the rest: {each.rest}", f"{left:.0f} ns"])
        yield table([f"`{each.row}`", f"{whole:.0f} ns"], lines)
