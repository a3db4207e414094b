"""What the archive and the Spark connector use of this package below its public face.

They import the public modules of `ipcbus`, the names that `ipcbus.config` exports, the types of the options, and this
module, and nothing else of the package; `tests/unit/test_floors.py` holds this. Applications use none of it: it may
change with each release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.config.option_checks import unknown_option
from ipcbus.config.option_values import Refused
from ipcbus.recovery.older_messages import OlderPiece
from ipcbus.runtime.error_mapping import check_topic
from ipcbus.storage.files import Disk, File, FileMissing, Files, Lock, is_name
from ipcbus.storage.records import Scan, frame, salvage, scan
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.properties import pack as pack_headers
from ipcbus.wire.properties import unpack as unpack_headers
from ipcbus.wire.wire_layout import MESSAGE_HEADER_BYTES

if TYPE_CHECKING:
    from typing import Unpack

    from ipcbus.config import SourceOptions
    from ipcbus.config.keywords import SourceKeywords
    from ipcbus.context import Context
    from ipcbus.runtime.discovery.recorder_stats_block import RecorderStatsBlock as RecorderStatsBlock

__all__ = [
    "MESSAGE_HEADER_BYTES",
    "NUMBER_MAX",
    "Disk",
    "File",
    "FileMissing",
    "Files",
    "Lock",
    "OlderPiece",
    "Refused",
    "Scan",
    "check_topic",
    "frame",
    "is_closed",
    "is_name",
    "pack_headers",
    "recorder_stats_block",
    "salvage",
    "scan",
    "source_options",
    "unknown_option",
    "unpack_headers",
]


def is_closed(context: Context) -> bool:
    """Returns whether a context was closed."""
    return context._closed


def source_options(context: Context, **options: Unpack[SourceKeywords]) -> SourceOptions:
    """Returns the options that a source of a context would have, with the values of its config.

    Args:
        context: the context.
        **options: options that `Context.source` would get.

    Raises:
        ConfigError: an option is unknown or its value is out of range.
    """
    return context._config.values("source", "", **options)


def recorder_stats_block(context: Context, log: str) -> RecorderStatsBlock:
    """Makes the block in which a recorder of a context shows its statistics to other processes.

    Args:
        context: the context that receives for the recorder.
        log: the path of the recorder's log.

    Raises:
        ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
        TransportError: the shared memory cannot be made.
    """
    return context._recorder_stats_block(log)
