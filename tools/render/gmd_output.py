"""The output of `ipcbus gmd`: areas, their messages, and what is damaged."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.gmd.area_inspection import Inspected, failed, inspect, names_of, saved_messages
from ipcbus.gmd.delivery_modes import ALL
from ipcbus_tools.common import age, number, safe, size
from ipcbus_tools.render.text_tables import Row, show_table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from ipcbus.gmd.delivery_terms import DeliveryTerms
    from ipcbus.gmd.sender_area import SavedMessage
    from ipcbus.storage.files import Files

_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A run of GMD numbers.

    Attributes:
        first: first number.
        last: last number.
    """

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AreaStream:
    """What a receiver has acknowledged of a sender.

    Attributes:
        sender: `gmd_name` of the sender.
        incarnation: the incarnation of its area, in hexadecimal digits.
        floor: all messages up to this number are acknowledged.
        ranges: acknowledged messages above the floor.
    """

    sender: str
    incarnation: str
    floor: int
    ranges: tuple[NumberRange, ...]


@dataclass(frozen=True, slots=True)
class AreaInfo:
    """A GMD area.

    Attributes:
        path: the directory of the area.
        role: `source` or `receiver`.
        name: `gmd_name` of the sender or receiver; empty if it is damaged.
        topic: name of the topic.
        domain: name of the domain.
        incarnation: of a sender's area, in hexadecimal digits; empty for a receiver's area.
        in_use_by: the process that uses the area, as it describes itself; empty without one.
        pending: number of messages that are not released; 0 for a receiver's area.
        failed: those of them that have failed for a receiver; `ipcbus gmd resend` sends them again.
        bytes: bytes of their records.
        disk_bytes: bytes of all files.
        last_number: the highest number that the sender has given.
        oldest_ns: send time of the pending message with the lowest number, in ns since the epoch; null without one.
        missing: messages whose copies are lost.
        receivers: the names that a sender expects to acknowledge messages; empty for a receiver's area.
        streams: what a receiver has acknowledged; empty for a sender's area.
        damaged: number of damaged parts; `ipcbus gmd verify` lists them.
    """

    path: str
    role: str
    name: str
    topic: str
    domain: str
    incarnation: str
    in_use_by: str
    pending: int
    failed: int
    bytes: int
    disk_bytes: int
    last_number: int
    oldest_ns: int | None
    missing: tuple[NumberRange, ...]
    receivers: tuple[str, ...]
    streams: tuple[AreaStream, ...]
    damaged: int

    @classmethod
    def of(cls, files: Files, found: Inspected) -> AreaInfo:
        """Returns the facts about an area."""
        identity, recovery = found.identity, found.recovery
        oldest = next(saved_messages(files, found), None)
        is_source, names = found.streams is None, names_of(found)
        return cls(
            str(found.folder),
            "source" if is_source else "receiver",
            identity.name if identity else "",
            identity.topic if identity else "",
            identity.domain if identity else "",
            f"{recovery.incarnation:016x}" if recovery else "",
            found.holder,
            recovery.index.count if recovery else 0,
            failed(found, names),
            recovery.index.bytes if recovery else 0,
            found.disk_bytes,
            recovery.last_number if recovery else 0,
            oldest.send_time_ns if oldest else None,
            tuple(NumberRange(*run) for run in recovery.missing) if recovery else (),
            tuple(sorted(name.name for name in names)),
            tuple(
                AreaStream(sender, f"{incarnation:016x}", floor, tuple(NumberRange(*run) for run in ranges))
                for (sender, incarnation), (floor, ranges) in (found.streams or {}).items()
            ),
            len(found.faults),
        )


@dataclass(frozen=True, slots=True)
class AreaList:
    """The GMD areas of a directory.

    Attributes:
        directory: the directory.
        areas: its areas.
    """

    directory: str
    areas: tuple[AreaInfo, ...]


@dataclass(frozen=True, slots=True)
class AreaMessage:
    """A message that waits in a sender's area.

    Attributes:
        number: its GMD number.
        mode: delivery mode, `some` or `all`.
        send_time_ns: when it was sent for the first time, in ns since the epoch.
        timeout_ns: after this time without the acknowledgements it fails, in ns; 0: never.
        header_bytes: bytes of its headers.
        bytes: bytes of its value.
    """

    number: int
    mode: str
    send_time_ns: int
    timeout_ns: int
    header_bytes: int
    bytes: int

    @classmethod
    def of(cls, message: SavedMessage, terms: DeliveryTerms) -> AreaMessage:
        """Returns the facts about a message, with its timeout as its area has noted it."""
        return cls(
            message.number,
            "all" if message.mode == ALL else "some",
            message.send_time_ns,
            terms.timeout_of(message.number),
            len(message.block),
            len(message.data),
        )


@dataclass(frozen=True, slots=True)
class AreaContent:
    """A GMD area with its messages.

    Attributes:
        area: the area.
        messages: its pending messages, in order.
    """

    area: AreaInfo
    messages: tuple[AreaMessage, ...]


@dataclass(frozen=True, slots=True)
class AreaDamage:
    """A damaged part of an area's files.

    Attributes:
        file: path of the file.
        offset: where the part begins, in bytes.
        length: bytes of the part; 0: the whole file.
        reason: what is wrong.
    """

    file: str
    offset: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class AreaVerification:
    """The result of a check of a GMD area.

    Attributes:
        path: the directory of the area.
        missing: messages whose copies are lost.
        findings: what is damaged.
    """

    path: str
    missing: tuple[NumberRange, ...]
    findings: tuple[AreaDamage, ...]

    @classmethod
    def of(cls, files: Files, folder: Path) -> AreaVerification:
        """Checks an area."""
        found = inspect(files, folder)
        missing = tuple(NumberRange(*run) for run in found.recovery.missing) if found.recovery else ()
        return cls(str(folder), missing, tuple(AreaDamage(*fault) for fault in found.faults))


@dataclass(frozen=True, slots=True)
class AreaRepair:
    """The result of a repair of a GMD area.

    Attributes:
        path: the directory of the area.
        repaired: number of damaged parts that were found and are gone.
        pending: messages that are kept, and not released.
        missing: messages whose copies are lost; the sender reports their failure when it starts.
    """

    path: str
    repaired: int
    pending: int
    missing: tuple[NumberRange, ...]


def lost_text(missing: tuple[NumberRange, ...]) -> str:
    """Returns runs of numbers for people."""
    texts = [str(run.first) if run.first == run.last else f"{run.first} to {run.last}" for run in missing[:_SHOWN]]
    return ", ".join(texts) + (" and more" if len(missing) > _SHOWN else "")


def show_list(console: Console, found: AreaList) -> None:
    """Prints the areas of a directory."""
    now = time.time_ns()
    rows: list[Row] = [
        {
            "name": area.name,
            "topic": area.topic,
            "role": area.role,
            "pending": number(area.pending) if area.role == "source" else "",
            "failed": number(area.failed) if area.role == "source" else "",
            "oldest": age((now - area.oldest_ns) / 1e9) if area.oldest_ns is not None else "",
            "bytes": size(area.bytes) if area.role == "source" else "",
            "disk": size(area.disk_bytes),
            "in use by": area.in_use_by or "-",
            "state": "damaged" if area.damaged else "missing messages" if area.missing else "good",
        }
        for area in found.areas
    ]
    if rows:
        show_table(console, "areas", rows)
    else:
        console.print(safe(f"{found.directory}: there are no areas"), soft_wrap=True)


def show_area(console: Console, area: AreaInfo) -> None:
    """Prints the facts about an area."""
    facts = {
        "path": area.path,
        "name": area.name,
        "topic": area.topic,
        "domain": area.domain,
        "role": area.role,
        "in use by": area.in_use_by or "-",
        "disk": size(area.disk_bytes),
    }
    if area.role == "source":
        facts |= {
            "incarnation": area.incarnation,
            "last number": number(area.last_number),
            "pending": f"{number(area.pending)}, {size(area.bytes)}",
            "failed": number(area.failed),
            "receivers": ", ".join(area.receivers) or "-",
        }
    if area.missing:
        facts["missing"] = lost_text(area.missing)
    if area.damaged:
        facts["damaged"] = f"{area.damaged} parts; 'ipcbus gmd verify' lists them"
    for name, value in facts.items():
        console.print(safe(f"{name:<12} {value}"), soft_wrap=True)
    rows: list[Row] = [
        {
            "sender": each.sender,
            "incarnation": each.incarnation,
            "acknowledged up to": number(each.floor),
            "and": lost_text(each.ranges),
        }
        for each in area.streams
    ]
    if rows:
        show_table(console, "senders", rows)


def message_line(message: AreaMessage) -> str:
    """Returns a message as a line."""
    sent = datetime.datetime.fromtimestamp(message.send_time_ns / 1e9).astimezone()
    timeout = f", timeout {message.timeout_ns / 1e9:g} s" if message.timeout_ns else ""
    headers = f", {message.header_bytes} bytes of headers" if message.header_bytes else ""
    when = sent.isoformat(sep=" ", timespec="milliseconds")
    return f"{message.number:>12} {message.mode:<4} {when} {number(message.bytes)} bytes{headers}{timeout}"
