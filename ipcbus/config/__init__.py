"""Options: the table of all options, and the values that a user set."""

from ipcbus.config.config import Config, ConfigLike
from ipcbus.config.option_values import Option, OptionValues, Value
from ipcbus.config.options import (
    SCOPES,
    TABLE,
    ContextOptions,
    EventQueueOptions,
    ReceiverOptions,
    SourceOptions,
    WildcardReceiverOptions,
)

__all__ = [
    "SCOPES",
    "TABLE",
    "Config",
    "ConfigLike",
    "ContextOptions",
    "EventQueueOptions",
    "Option",
    "OptionValues",
    "ReceiverOptions",
    "SourceOptions",
    "Value",
    "WildcardReceiverOptions",
]
