"""The options of the sink `ipcbus`, checked before a row is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipcbus.config import Config, SourceOptions
from ipcbus.embedding import MESSAGE_HEADER_BYTES, Refused, check_topic, is_name, unknown_option
from ipcbus.errors import ConfigError
from ipcbus.spark import option_parsers
from ipcbus.spark.read_options import Option, flag, read_table
from ipcbus.spark.sink.staged_rows import JOB_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus.config import Value
    from ipcbus.spark.read_options import Use

BUS_PREFIX: Final = "source."
"""Prefix of options of a source of the bus."""

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

_TRANSPORTS: Final = SourceOptions.rows["transport"].choices
_SPARK_OPTIONS: Final = ("checkpointlocation",)
"""Options that Spark passes to every sink of a query."""


def _application(text: str) -> str:
    if not is_name(text) or text.startswith(JOB_PREFIX):
        raise ValueError(f"it becomes the name of a directory, and the prefix {JOB_PREFIX} is reserved")
    return text


def _topic(text: str) -> str:
    try:
        check_topic(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


WRITE: Final = (
    Option("topic", "a topic", "Send every row to this topic, also where the frame has a column `topic`.", _topic),
    Option(
        "deliveryGuarantee",
        f"`{AT_LEAST_ONCE}`, `{EXACTLY_ONCE}`",
        f"`{AT_LEAST_ONCE}`: publish rows as they come, and those of a failed task again. `{EXACTLY_ONCE}`: stage "
        "rows, and publish each committed batch once, on one host.",
        option_parsers.choice(AT_LEAST_ONCE, EXACTLY_ONCE),
        default=AT_LEAST_ONCE,
    ),
    Option(
        "stagingDir",
        "an absolute path",
        f"Directory on a disk of this host where `{EXACTLY_ONCE}` keeps staged rows and the ledger of published ones.",
        option_parsers.name,
    ),
    Option(
        "txnAppId",
        "1 to 100 letters, digits and `._-`",
        "Name of the writer, whose batches are counted. The header `ipcbus.query` has it, with `at-least-once` "
        "followed by the id of the streaming query. Default: the id of the query.",
        _application,
    ),
    Option(
        "txnVersion",
        "a number from 0",
        "Number of this batch of `txnAppId`; a batch is published only once. For `foreachBatch`.",
        option_parsers.number(0),
        use="batch",
    ),
    Option("domain", "a name", "Domain of the bus.", option_parsers.name, default="default"),
    Option(
        "transport",
        ", ".join(f"`{each}`" for each in _TRANSPORTS),
        "Transport; default: that of the config, else `lbtipc`.",
        option_parsers.choice(*_TRANSPORTS),
    ),
    Option("config", "a path", "Config file of the bus; default: that of IPCBUS_CONFIG.", option_parsers.name),
    Option(
        "waitForReceivers",
        "a number from 0",
        "A task or batch sends on a topic when at least this many receiving contexts have joined it.",
        option_parsers.number(0, 1000),
        default="1",
    ),
    Option(
        "receiverTimeout",
        "a time such as `500ms`, `30s`, `15m`",
        "The write fails when too few receivers have joined after this time.",
        option_parsers.duration,
        default="30s",
    ),
    Option(
        "linger",
        "a time such as `500ms`, `30s`, `15m`",
        "How long a process that writes stays on the bus after its last row, so that its receivers stay joined for the "
        "next batch.",
        option_parsers.duration,
        default="30s",
    ),
    flag(
        "includeIdentity",
        "true",
        f"Mark each message with the headers `ipcbus.query`, `.batch`, `.partition` and `.row`; `{EXACTLY_ONCE}` needs "
        "it.",
    ),
)
"""Every option of writing, besides those of a source of the bus."""


@dataclass(frozen=True, slots=True)
class BusOptions:
    """The options of the bus; writes with equal options share a context.

    Attributes:
        domain: the domain.
        config: path of a config file; None: the one that IPCBUS_CONFIG names.
        source: options of each source.
        receivers: number of receiving contexts to wait for.
        timeout_s: longest wait for them, in s.
        linger_s: how long an unused context stays open, in s.
        strict: whether options that can lose messages are refused.
    """

    domain: str
    config: str | None
    source: tuple[tuple[str, Value], ...]
    receivers: int
    timeout_s: float
    linger_s: float
    strict: bool

    def check(self, config: Config, topic: str) -> None:
        """Refuses options that the guarantee rules out.

        Args:
            config: the config of the bus.
            topic: name of the topic; empty where it is not known yet.

        Raises:
            ConfigError: an option of the bus is invalid, or the session would not wait for its receivers.
        """
        values = config.values("source", topic, **dict(self.source))
        if not self.strict:
            return
        for name, needed in _RECEIVER_PACED.items():
            if values[name] not in needed:
                raise _wrong(
                    f"deliveryGuarantee is {EXACTLY_ONCE}, but {name} is {values[name]!r}, so a receiver may "
                    f"miss messages; set {BUS_PREFIX}{name} to {' or '.join(needed)}, or use {AT_LEAST_ONCE}"
                )

    def longest(self, config: Config, topic: str) -> int | None:
        """Returns the most bytes of a message of a topic, with its headers; None without a limit."""
        values = config.values("source", topic, **dict(self.source))
        if values.transport != "lbtsmx":
            return None
        return values.transport_lbtsmx_datagram_max_size - MESSAGE_HEADER_BYTES


_RECEIVER_PACED: Final = {
    "transport": ("lbtipc", "lbtsmx"),
    "transport_lbtipc_behavior": ("receiver_paced",),
    "slow_receiver_behavior": ("block",),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of a write; the table WRITE says what each one means."""

    topic: str | None
    exactly_once: bool
    staging: Path | None
    app: str | None
    version: int | None
    identity: bool
    bus: BusOptions

    @classmethod
    def of(cls, given: Mapping[str, str], use: Use) -> WriteOptions:
        """Checks the given options.

        Args:
            given: name -> text, in any case of letters.
            use: whether a batch or a stream writes.

        Raises:
            ConfigError: an option is unknown, has no meaning in this use, contradicts another one, or has an invalid
                value. The text names the option and a correct value.
        """
        by_name = {name.lower(): text for name, text in given.items() if name.lower() not in _SPARK_OPTIONS}
        ours = {name: text for name, text in by_name.items() if not name.startswith(BUS_PREFIX)}
        values = read_table(WRITE, ours, use)
        exactly_once = values["deliveryGuarantee"] == EXACTLY_ONCE
        _check_together(values, use, exactly_once)
        bus = BusOptions(
            domain=values["domain"],
            config=values["config"],
            source=_source_options(by_name, values["transport"]),
            receivers=values["waitForReceivers"],
            timeout_s=values["receiverTimeout"],
            linger_s=values["linger"],
            strict=exactly_once,
        )
        bus.check(Config.load(bus.config), values["topic"] or "")
        return cls(
            topic=values["topic"],
            exactly_once=exactly_once,
            staging=_directory(values["stagingDir"]) if exactly_once else None,
            app=values["txnAppId"],
            version=values["txnVersion"],
            identity=values["includeIdentity"],
            bus=bus,
        )


def _check_together(values: dict[str, Any], use: Use, exactly_once: bool) -> None:
    if exactly_once and not values["includeIdentity"]:
        raise _wrong(f"includeIdentity is false, but {EXACTLY_ONCE} needs true; leave the option out")
    if exactly_once and values["stagingDir"] is None:
        raise _wrong(f"stagingDir is missing; {EXACTLY_ONCE} needs a directory on a disk of this host")
    if use == "batch" and (values["txnAppId"] is None) != (values["txnVersion"] is None):
        raise _wrong("txnAppId and txnVersion belong together; give both, or leave both out")


def _source_options(by_name: Mapping[str, str], transport: str | None) -> tuple[tuple[str, Value], ...]:
    found: dict[str, Value] = {} if transport is None else {"transport": transport}
    for name, text in by_name.items():
        if not name.startswith(BUS_PREFIX):
            continue
        bare = name.removeprefix(BUS_PREFIX)
        row = SourceOptions.rows.get(bare)
        if row is None:
            raise _wrong(f"{name}: {unknown_option('source', bare, text)}")
        if bare in found:
            raise _wrong(f"{name} and transport are both given; leave one of them out")
        try:
            found[bare] = row.parse({"true": "1", "false": "0"}.get(text, text) if row.kind is bool else text)
        except Refused as refusal:
            raise _wrong(f"{name} is {text!r}: {refusal}") from None
    return tuple(sorted(found.items()))


def _directory(text: str) -> Path:
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        text = "/" + rest.lstrip("/")
    if not text.startswith("/"):
        raise _wrong(f"stagingDir is {text!r}; give the absolute path of a directory on a disk of this host")
    return Path(os.path.realpath(text))


def _wrong(text: str) -> ConfigError:
    return ConfigError(f"sink ipcbus: option {text}")
