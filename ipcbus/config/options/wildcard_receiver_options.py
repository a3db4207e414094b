"""The options of a wildcard receiver."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.option_limits import interval
from ipcbus.config.options.resolver_options import ResolverWildcardReceiver


class WildcardReceiverOptions(ResolverWildcardReceiver, OptionValues, scope="wildcard_receiver"):
    """Options of a wildcard receiver; the receivers that it makes have the options of scope receiver."""

    pattern_type = Option(
        default="pcre",
        choices=("pcre", "regex"),
        meaning="Kind of pattern; both values mean Python's regular expressions (module re), and the whole topic must "
        "match. In Ultra Messaging regex is POSIX.",
    )
    resolver_no_source_linger_timeout = interval(
        1000,
        "How long the receiver of a topic remains after the last source of the topic has ended.",
        minimum=0,
    )
