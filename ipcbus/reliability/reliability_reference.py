"""The generated parts of docs/explanation/reliability.md: state diagrams, and settings with their defaults.

In a checkout, `python -m ipcbus.reliability.reliability_reference` writes them between their marks;
with `--check` it only compares.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipcbus.reliability import clients, loss_detector, registration
from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.send_state import SendSettings
from ringbuf import codegen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"

_PART = re.compile(r"(<!-- from the tables: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MS: Final = 1_000_000


def render(page: str) -> str:
    """Returns the page with its generated parts replaced."""
    parts = {"losses": _losses(), "registration": _registration(), "clients": _clients(), "settings": _settings()}
    return _PART.sub(lambda found: f"{found[1]}\n{parts.get(found[2], '')}\n{found[3]}", page)


def _losses() -> str:
    steps = [
        (state.name, step.state.name, cause.name + (" (asks)" if step.asks else ""))
        for (state, cause), step in loss_detector.TABLE.items()
    ]
    ends = [
        (state.name, "[*]", "the datagram came, is too old, or is not held any more") for state in loss_detector.State
    ]
    first = loss_detector.State.BACKOFF.name
    return _diagram([("[*]", first, "found missing"), *steps, *ends], (loss_detector.State, loss_detector.Cause))


def _registration() -> str:
    steps = [(state.name, following.name, cause.name) for (state, cause), following in registration.TABLE.items()]
    ends = [(state.name, "[*]", "") for state in registration.State if state in registration.OVER]
    first = registration.State.CONNECTING.name
    return _diagram([("[*]", first, ""), *steps, *ends], (registration.State, registration.Cause))


def _clients() -> str:
    steps = [
        (state.name, step.state.name, cause.name + (f" ({step.answer.name})" if step.answer.value else ""))
        for (state, cause), step in clients.TABLE.items()
    ]
    first = clients.State.UNKNOWN.name
    return _diagram([("[*]", first, ""), *steps], (clients.State, clients.Cause, clients.Answer))


def _diagram(steps: Iterable[tuple[str, str, str]], words: Iterable[type[Enum]]) -> str:
    """Returns a state diagram and a table of its words; steps between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, following, what in steps:
        arrows.setdefault((state, following), []).append(what)
    lines = [
        f"    {state} --> {following}" + (f": {', '.join(whats)}" if any(whats) else "")
        for (state, following), whats in arrows.items()
    ]
    rows = [f"| `{word.name}` | {word.value} |" for kind in words for word in kind if word.value]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", "", "| word | meaning |", "|---|---|", *rows, ""])


def _settings() -> str:
    kinds = (SendSettings, NakSettings, ReceiveSettings, ClientSettings, ReceiverSettings)
    rows = [row for kind in kinds for row in _setting_rows(kind)]
    return "\n".join(["| side | setting | default | meaning |", "|---|---|---:|---|", *rows, ""])


def _setting_rows(kind: type) -> list[str]:
    meanings = codegen.attributes(kind)
    side = "source" if kind in (SendSettings, ClientSettings) else "receiver"
    return [
        f"| {side} | `{each.name}` | {_shown(each.default)} | {meanings[each.name]} |"
        for each in dataclasses.fields(kind)
        if isinstance(each.default, int)
    ]


def _shown(value: int) -> str:
    """Returns a default as text; one of 50 ms or more, in ns, is a time, since no other default is as large."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value // _MS:,} ms" if value >= 50 * _MS else f"{value:,}"


def main() -> None:
    """Writes the page, or with `--check` only compares it.

    Raises:
        SystemExit: with `--check`, when the page differs from the tables.
    """
    codegen.main("ipcbus.reliability", {PAGE: render(PAGE.read_text(encoding="utf-8"))}, cure="make docs")


if __name__ == "__main__":
    main()
