"""What a receiver is told, by kind."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class MessageType(IntEnum):
    """Kind of a message or event; numbers are Ultra Messaging's where it has the kind (lbm.h, LBM_MSG_*)."""

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
    """Where a fragment belongs (Ultra Messaging: lbm_msg_retrieve_fragment_info)."""

    first_sequence_number: int
    offset: int
    total_length: int
