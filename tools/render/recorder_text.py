"""Recorders for people: state and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus_tools.common import duration, number, size

if TYPE_CHECKING:
    from ipcbus.stats import ContextStats, RecorderStats
    from ipcbus_tools.render.text_tables import Row


def row(context: ContextStats, recorder: RecorderStats) -> Row:
    """Returns a recorder as a line of a table."""
    counted = recorder.counters
    return {
        "recorder": recorder.log,
        "context": f"{context.context_id:08x}",
        "name": context.name,
        "pid": context.pid,
        "user": context.user,
        "state": recorder.doing,
        "messages": number(counted["messages"]),
        "bytes": size(counted["bytes"]),
        "lost": number(counted["lost"]),
        "missed": number(counted["missed"]),
        "dropped": number(counted["dropped"]),
        "behind": duration(counted["behind_ns"]),
        "buffer": size(counted["buffered_bytes"]) + ("" if recorder.fill is None else f" ({recorder.fill:.0%})"),
        "errors": number(counted["errors"]),
        "next offset": number(counted["next_offset"]),
    }
