"""The table of options: one class for each scope, one row for each option.

Names and units are those of Ultra Messaging. The meaning says where a default or a meaning differs, and which options
are additions. To add an option, add its row to the class of its scope, or to a base of it (`lbtru_options`,
`lbtrm_options`, `resolver_options`): checks, errors, config files and the reference page follow from the row.
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
"""All rows, by scope, in the order of the classes."""
