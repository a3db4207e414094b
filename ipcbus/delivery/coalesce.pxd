# Events that wait for a receiver that does not take them: as few as tell the same.
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
    """Whether both are of the same topic of the same session, also if it was joined again in between."""
    if one.origin is other.origin:
        return True
    return one.origin.topic == other.origin.topic and one.origin.source == other.origin.source


cdef inline void extend(Message waiting, Message loss) noexcept:
    """Makes one loss that waits out of two."""
    waiting.sequence = loss.sequence
    waiting.kind = KIND_BURST
