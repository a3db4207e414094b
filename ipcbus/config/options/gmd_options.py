"""The options of guaranteed message delivery (GMD), as SmartSockets names them where it has them."""

from __future__ import annotations

from ipcbus.config.option_values import Option
from ipcbus.config.options.option_limits import MAX_COUNT, MAX_SECONDS, MAX_WINDOW

_NAME_MAX = 100
_GMD_DIRECTORY = (
    "Directory of the GMD areas; an area of {} is directory/gmd_name/topic. Empty: ipcbus/gmd in the user's XDG state "
    "directory (XDG_STATE_HOME, or ~/.local/state). It must be on a local disk. SmartSockets: /tmp/rtworks."
)


def _directory(whose: str) -> Option[str]:
    return Option(default="", meaning=_GMD_DIRECTORY.format(whose))


def _type(what: str) -> Option[str]:
    return Option(
        default="default",
        choices=("default", "file", "memory"),
        meaning=f"Where {what}. file: in files, which survive the process; default: as file; memory: in the memory of "
        "the process. An area that cannot be made in files is an error. SmartSockets takes memory then, quietly.",
    )


class GmdSource:
    """The options of guaranteed message delivery for a source."""

    gmd_name = Option(
        default="",
        maximum=_NAME_MAX,
        meaning="Name under which the source sends guaranteed messages, the same after each restart; empty: it sends "
        "none. Two live sources of a topic cannot have the same name and directory. SmartSockets: Unique_Subject.",
    )
    delivery_mode = Option(
        default="best_effort",
        choices=("best_effort", "ordered", "some", "all"),
        meaning="How a message is delivered if its send does not name a mode. best_effort, ordered: no copy is kept. "
        "some: the source keeps a copy until one expected receiver has acknowledged the message; all: until each of "
        "them has.",
    )
    delivery_timeout = Option(
        default=0,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        special_zero=True,
        meaning="A guaranteed message that is not acknowledged within this time is a failure (518), unless its send "
        "gave another time. 0: never. SmartSockets: 30.",
    )
    ipc_gmd_directory = _directory("a source")
    ipc_gmd_type = _type("the source keeps copies of guaranteed messages")
    gmd_durability = Option(
        default="process",
        choices=("process", "group", "each"),
        meaning="What a copy in files survives when send returns. process: the end of the process, by kill -9 too; "
        "group: also a power loss, as soon as a thread, which syncs the files in turns, has done so (wait_durable "
        "waits for that); each: a power loss, as each send syncs the files. An addition to SmartSockets.",
    )
    gmd_max_size = Option(
        default=0,
        unit="bytes",
        minimum=0,
        maximum=MAX_WINDOW,
        special_zero=True,
        meaning="Most bytes of messages that are not acknowledged; above it, a send of a guaranteed message raises "
        "GmdAreaFull. 0: no limit.",
    )
    gmd_fresh = Option(
        default=False,
        meaning="Whether the source begins with an empty GMD area, and drops messages that an earlier source of this "
        "name has left. SmartSockets: FileDelete.",
    )
    gmd_zero_receivers = Option(
        default="wait",
        choices=("wait", "success", "failure"),
        meaning="What happens to a guaranteed message while no receiver is expected. wait: it waits for the first "
        "named receiver; success: it counts as acknowledged, as in SmartSockets; failure: it is a failure (521).",
    )
    gmd_reconnect_timeout = Option(
        default=300,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        special_zero=True,
        meaning="How long a named receiver that went away is expected to come back, while this source lives; after "
        "that, its messages are failures (519). 0: for ever. SmartSockets: 30.",
    )
    gmd_confirm_delivery = Option(
        default=False,
        meaning="Whether on_event gets GMD_DELIVERED for guaranteed messages whose delivery is complete. An addition "
        "to SmartSockets.",
    )


class GmdReceiver:
    """The options of guaranteed message delivery for a receiver."""

    gmd_name = Option(
        default="",
        maximum=_NAME_MAX,
        meaning="Name under which the receiver acknowledges guaranteed messages, the same after each restart; empty: "
        "it gets them as other messages, and no source waits for it. A second live receiver of a topic with the same "
        "name is refused. SmartSockets: Unique_Subject.",
    )
    ipc_gmd_directory = _directory("a receiver")
    ipc_gmd_type = _type("the receiver records what it has acknowledged")
    gmd_durability = Option(
        default="process",
        choices=("process", "each"),
        meaning="What a record of acknowledgements in files survives when the source gets them. process: the end of "
        "the process, by kill -9 too; each: a power loss, as the receiver syncs each record. A record has all "
        "acknowledgements of a turn, so that it needs no group. An addition to SmartSockets.",
    )
    gmd_disconnect_mode = Option(
        default="warm",
        choices=("warm", "gmd_failure", "gmd_success"),
        meaning="What happens at the sources to messages that the receiver has not acknowledged when it goes away. "
        "warm: they wait for gmd_reconnect_timeout; gmd_failure: they are failures (520); gmd_success: they count as "
        "acknowledged. SmartSockets: gmd_failure.",
    )
    ipc_gmd_auto_ack = Option(
        default=True,
        meaning="Whether guaranteed messages are acknowledged without a call of Message.ack.",
    )
    ipc_gmd_auto_ack_policy = Option(
        default="first",
        choices=("first", "last"),
        meaning="When a message is acknowledged without a call. first: when the callback has returned, also one that "
        "an event queue dispatches, or at the next call that pulls from the receiver; last: when nothing refers to the "
        "message any more. SmartSockets: first_destroy, last_destroy.",
    )
    gmd_unrecorded_maximum = Option(
        default=64,
        unit="messages",
        minimum=1,
        maximum=100_000,
        meaning="Most messages that the receiver has delivered and whose acknowledgement its area has not recorded. "
        "That number of messages of each source may come twice after its process was killed, and one more for each "
        "further thread that has one. receive_many and receive_into return no more at once. A thread that acknowledges "
        "one too many waits until they are recorded, unless it drops the last reference with policy last. An addition "
        "to SmartSockets.",
    )
    gmd_max_deliveries = Option(
        default=0,
        unit="deliveries",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="How many times in all a message is delivered if its callback raises, or Message.nack is called. "
        "Then the receiver gives it up: the source gets a failure (522). 0: for ever. An addition to SmartSockets.",
    )
    gmd_dead_letter_topic = Option(
        default="",
        maximum=255,
        meaning="Topic on which the receiver publishes messages that it gives up (gmd_max_deliveries); it acknowledges "
        "them then, so that they are not failures. Empty: none. An addition to SmartSockets.",
    )
