"""The kinds of messages and events that a receiver gets."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class MessageType(IntEnum):
    """The kind of a message or event; numbered as in Ultra Messaging where it has the kind (lbm.h, LBM_MSG_*)."""

    DATA = 0
    EOS = 1
    REQUEST = 2
    RESPONSE = 3
    UNRECOVERABLE_LOSS = 4
    UNRECOVERABLE_LOSS_BURST = 5
    NO_SOURCE_NOTIFICATION = 6
    BOS = 20
    GMD_FAILURE = 100


class FragmentInfo(NamedTuple):
    """The place of a fragment in its message (Ultra Messaging: lbm_msg_retrieve_fragment_info)."""

    first_sequence_number: int
    offset: int
    total_length: int
