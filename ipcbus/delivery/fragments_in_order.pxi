# Fragments that come in order, with nothing missing.

from ipcbus.delivery.assembly cimport is_next, open_assembly
from ipcbus.delivery.message_types import FragmentInfo
from ipcbus.delivery.received_message cimport whole_message
from ipcbus.wire._wire_layout cimport FLAG_END_BATCH, FLAG_START_BATCH, FRAGMENT_HEADER_BYTES, FragmentHeader

cdef enum:
    SHOWN = FLAG_START_BATCH | FLAG_END_BATCH

# A call of a named tuple would run Python code.
cdef object new_tuple = tuple.__new__


cdef long take_fragment(
    Demux demux, Controller controller, const char *payload, uint32_t length, int flags, uint64_t sequence, uint64_t sent_ticks
) except -2:
    """Takes the fragment `expected`; returns how many messages were delivered, or NOT_NEXT when Python takes it."""
    cdef Assembly assembly = controller.assembly
    cdef Tally tally = demux.tally
    cdef FragmentHeader header
    cdef bint whole
    if length <= FRAGMENT_HEADER_BYTES:
        return NOT_NEXT
    memcpy(&header, payload, FRAGMENT_HEADER_BYTES)     # once: its source may change it
    length -= FRAGMENT_HEADER_BYTES
    if assembly is not None:
        if not is_next(assembly, &header, length):
            return NOT_NEXT
    elif not (controller.reassembles and controller.fast_path):
        return NOT_NEXT
    else:
        assembly = open_assembly(controller._budget, &header, length, sequence, sent_ticks)
        if assembly is None:
            return NOT_NEXT
        controller.assembly, controller.fast_path = assembly, False
        tally.reassembly_bytes += assembly.total
    whole = assembly.filled + length == assembly.total
    if whole and (assembly.flags | flags) & ~(FLAG_FRAGMENT | SHOWN):
        return NOT_NEXT     # Python takes it apart
    assembly.put_next(payload + FRAGMENT_HEADER_BYTES, length, flags)
    controller.expected += 1
    tally.fragments_rcved += 1
    if not whole:
        demux.show_tally()
        return 0
    controller.assembly, controller.fast_path = None, True
    controller._budget.release(assembly.total)
    tally.reassembly_bytes -= assembly.total
    tally.msgs_reassembled += 1
    tally.completed += 1
    demux.show_tally()
    controller.deliver(whole_message(
        controller.origin, assembly.own, assembly.first, sequence, assembly.flags & SHOWN, assembly.send_ticks,
        new_tuple(FragmentInfo, (assembly.first, 0, assembly.total)),
    ), demux.slow_path)
    return 1
