"""The options of shares: receivers that compete for the messages of a topic. The names are those of queuing (ULB)."""

from __future__ import annotations

from ipcbus.config.option_values import Option
from ipcbus.config.options.option_limits import MAX_COUNT, interval


class ShareSource:
    """The options of a source for its shares."""

    umq_ulb_flight_size = Option(
        default=1000,
        unit="messages",
        minimum=1,
        maximum=2**24,
        meaning="Messages of the source that may wait for a share with members, or be in flight to them; above that, a "
        "send waits. A share whose members have all gone keeps this number, and gives up older ones (SHARE_FAILURE).",
    )
    umq_ulb_message_reassignment_timeout = interval(
        0,
        "A message that a member of a share does not acknowledge in this time is assigned to another one; the first "
        "one may acknowledge it late. 0: never; a member that is closed or dies is found without it. Ultra Messaging: "
        "10000.",
        minimum=0,
        special_zero=True,
    )
    umq_ulb_message_max_reassignments = Option(
        default=0,
        unit="assignments",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="How often a message is assigned to members of a share, the first time included; then it is given up "
        "(SHARE_FAILURE, umq_ulb_dead_letter_topic). With 2 or more, what a member had when it died is given to others "
        "one by one, so that only the message that kills them is given up. 0: without limit, also if it kills each "
        "member.",
    )
    umq_ulb_dead_letter_topic = Option(
        default="",
        maximum=255,
        meaning="Topic on which the source publishes messages that were assigned umq_ulb_message_max_reassignments "
        "times, or waited for umq_ulb_message_lifetime, with headers that say where they come from. Empty: none. An "
        "addition to Ultra Messaging.",
    )
    umq_ulb_message_lifetime = interval(
        0,
        "A message that waits for a member of a share is given up after this time (SHARE_FAILURE). 0: never.",
        minimum=0,
        special_zero=True,
    )


class ShareReceiver:
    """The options of a member of a share."""

    share = Option(
        default="",
        maximum=255,
        meaning="Name of a share: each message of a source goes to one of the receivers of its topic with this name. "
        "It is acknowledged as ipc_gmd_auto_ack says. Empty: the receiver gets all messages. An addition to Ultra "
        "Messaging, where a source lists its application sets.",
    )
    umq_ulb_receiver_portion = Option(
        default=64,
        unit="messages",
        minimum=1,
        maximum=100_000,
        meaning="Most messages of each source that a member of a share has at a time without having acknowledged them. "
        "Ultra Messaging: 1, set at the source.",
    )
