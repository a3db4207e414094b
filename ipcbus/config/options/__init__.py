"""The table of options: a class each scope, one row an option.

Names and units are Ultra Messaging's; where a default or a meaning differs from it, or the option is an
addition, the meaning says so. To add an option, add its row to the class of its scope, or to the one that it has from
the module of a subject (`lbtru`, `lbtrm`, `resolver`): checks, errors, config files and the reference page follow.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ipcbus.config.options.context_options import ContextOptions
from ipcbus.config.options.event_queue_options import EventQueueOptions
from ipcbus.config.options.receiver_options import ReceiverOptions
from ipcbus.config.options.source_options import SourceOptions
from ipcbus.config.options.wildcard_receiver_options import WildcardReceiverOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus.config.option_values import OptionValues

__all__ = [
    "SCOPES",
    "TABLE",
    "ContextOptions",
    "EventQueueOptions",
    "ReceiverOptions",
    "SourceOptions",
    "WildcardReceiverOptions",
]

SCOPES: Final[Mapping[str, type[OptionValues]]] = MappingProxyType(
    {
        options.scope: options
        for options in (
            ContextOptions,
            SourceOptions,
            ReceiverOptions,
            EventQueueOptions,
            WildcardReceiverOptions,
        )
    }
)

TABLE: Final = tuple(row for options in SCOPES.values() for row in options.rows.values())
"""Every row, by scope and in the order of the classes."""
