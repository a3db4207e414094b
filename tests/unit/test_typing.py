"""A type checker finds wrong options and data in programs of users, and nothing in right ones, examples and docs."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = """\
import array
import os
from collections.abc import Mapping
from typing import Unpack

import numpy as np

import ipcbus
from ipcbus.config import Config
from ipcbus.config.keywords import ConfigMapping, ReceiverKeywords, SourceKeywords

SETTINGS: ConfigMapping = {
    "context": {"operational_mode": "sequential", "requests_outstanding_maximum": 5},
    "topics": [{"name": "t", "source": {"transport": "lbtsmx"}}],
}


def quotes(ctx: ipcbus.Context, **options: Unpack[SourceKeywords]) -> ipcbus.Source:
    return ctx.source("quotes", **options)


def last(ctx: ipcbus.Context, **options: Unpack[ReceiverKeywords]) -> ipcbus.Receiver:
    return ctx.receiver("quotes", **options)


def data_of(message: ipcbus.Message) -> None:
    message.respond(message.data)
    message.respond(memoryview(b""))


def run(built: Mapping[str, object]) -> None:
    with ipcbus.Context(Config(built)), ipcbus.Context(os.devnull), ipcbus.Context(SETTINGS, domain="d") as ctx:
        src = quotes(ctx, transport="lbtsmx", late_join=1, message_max=np.int64(10))
        ctx.source("t", transport="tcp")
        src = ctx.source("t", gmd_name="a", delivery_mode="all", udp_fallback="none", late_join=True)
        for data in (b"", bytearray(3), memoryview(b""), array.array("d"), np.zeros(3), np.float64(3)):
            src.send(data, flush=True)
        src.send(b"", headers={"n": b"v"})
        src.send_many([b"a", memoryview(b"b")])
        src.send_many(np.zeros((3, 8), np.uint8))
        ctx.receiver("t", data_of, share="s", ordered_delivery=-1, use_udp_fallback=False, history=None)
        ctx.wildcard_receiver("t", data_of, pattern_type="pcre", receive_queue_maximum=5)
        ctx.receiver("t", on_data=print, event_queue=ipcbus.EventQueue(5, queue_age_enabled=True))
        receiver = last(ctx, history=1)
        receiver.receive().respond(b"")
        with receiver.lease() as leased:
            leased.array((1,), np.uint8)


async def lease(receiver: ipcbus.Receiver) -> None:
    async with receiver.alease() as leased:
        leased.array((1,), np.uint8)
"""

WRONG = """\
import ipcbus


def run(ctx: ipcbus.Context, src: ipcbus.Source, rcv: ipcbus.Receiver, message: ipcbus.Message) -> None:
    ctx.source("t", transprot="lbtsmx")  # did you mean "transport"
    ctx.source("t", transport="lbtsxm")  # expected "Literal['lbtipc'
    ctx.source("t", message_max="large")  # expected "SupportsIndex"
    ctx.source("t", message_max=1.5)  # expected "SupportsIndex"
    ctx.source("t", late_join="yes")  # bool
    ctx.source("t", gmd_name=5)  # expected "str"
    ctx.source("t", receive_queue_maximum=5)  # Unexpected keyword argument "receive_queue_maximum"
    ctx.source("t", on_event=5)  # expected "Callable[[SourceEvent]
    ctx.receiver("t", history="all")  # expected "SupportsIndex | None"
    ctx.receiver("t", pattern_type="pcre")  # Unexpected keyword argument "pattern_type"
    ctx.wildcard_receiver("t", patern_type="pcre")  # did you mean "pattern_type"
    ipcbus.EventQueue(5, queue_age_enable=True)  # did you mean "queue_age_enabled"
    ipcbus.Context({"context": {"context_nam": "a"}})  # expected "Config | ConfigMapping
    ipcbus.Context({"source": {"transport": 5}})  # expected "Config | ConfigMapping
    ipcbus.Context(transport="lbtipc")  # expected "Never"
    ipcbus.Context({"sources": {}})  # expected "Config | ConfigMapping
    rcv.receive(1).respond(b"")  # "None" of "Message | None"
    with rcv.lease(1) as leased:
        leased.array((1,), "u1")  # "None" of "Message | None"
    src.send("text")  # Buffer
    src.send(b"", headers={"n": "v"})  # Buffer
    src.send_many(["text"])  # Buffer
    src.request("text")  # Buffer
    message.respond("text")  # Buffer
    ctx.respond(b"", "text")  # Buffer
"""


PARTS = """\
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
# mypy: disable-error-code="union-attr, var-annotated, has-type, func-returns-value, truthy-bool, operator"
"""
"""What parts of programs may do: they leave out types of their own, and cases of which the text does not speak."""


def write_documented(directory: Path) -> None:
    """Writes the Python of the pages: a file for each program of a tutorial, one for each other page."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
        if page.parent.name == "tutorial":
            for number, text in enumerate(blocks):
                (directory / f"{name}_{number}.py").write_text(text)
        elif blocks and not any("pyspark" in text or "ipcbus.spark" in text for text in blocks):
            (directory / f"{name}.py").write_text(PARTS + "\n".join(blocks))


# Without the cache of `make lint` the checker reads numpy first.
@pytest.mark.timeout(300)
def test_a_type_checker_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    write_documented(tmp_path)
    examples = sorted((ROOT / "examples").glob("*/*.py"))
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", *sorted(tmp_path.glob("*.py")), *examples],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    errors = re.findall(r"^(.+?):(\d+): error: (.*)$", run.stdout, re.MULTILINE)
    assert not [error for error in errors if not error[0].endswith("wrong.py")], run.stdout
    found = {int(line): text for _, line, text in errors}
    expected = {line: text.partition("  # ")[2] for line, text in enumerate(WRONG.splitlines(), 1) if "  # " in text}
    assert {line: text for line, text in expected.items() if text not in found.get(line, "")} == {}, run.stdout
    assert found.keys() == expected.keys()
