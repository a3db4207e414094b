# Merges events that wait for a receiver: as few events as possible that say the same thing.
from ipcbus.delivery.received_message cimport Message

cdef enum:
    KIND_EOS = 1
    KIND_LOSS = 4
    KIND_BURST = 5
    KIND_NO_SOURCE = 6
    KIND_BOS = 20


cdef inline bint is_event(Message message) noexcept:
    return message.kind != 0 and message.kind != 2 and message.kind != 3   # data, request, response


cdef inline bint is_loss(Message message) noexcept:
    return message.kind == KIND_LOSS or message.kind == KIND_BURST


cdef inline bint same_origin(Message one, Message other):
    """Returns whether both belong to one topic of one session, also if the session was joined again in between."""
    if one.origin is other.origin:
        return True
    return one.origin.topic == other.origin.topic and one.origin.source == other.origin.source


cdef inline void extend(Message waiting, Message loss) noexcept:
    """Extends a waiting loss by the loss that follows it."""
    waiting.sequence = loss.sequence
    waiting.kind = KIND_BURST
