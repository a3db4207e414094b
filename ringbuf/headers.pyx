# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Copies and checks the headers of the two shared objects before anything else is read."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ringbuf cimport _atomics
from ringbuf._layout cimport (
    KIND_CONTROL, KIND_RING, RECEIVER_PACED_EVICTS, RECORD_HEADER, SLOTS_MAX, ControlHeader, RingHeader, Slot,
)
from ringbuf.memory cimport Mapping

from ringbuf import layout
from ringbuf.ring_errors import SegmentMismatch


cdef int check_ring(Mapping ring, RingHeader *h) except -1:
    """Copies a ring's header, which its owner can change at any time, and checks the copy."""
    if ring.size < sizeof(RingHeader):
        raise SegmentMismatch(f"an object of {ring.size} bytes is too small for a ring of ipcbus; remove it, or choose another domain")
    memcpy(h, ring.base, sizeof(RingHeader))
    _atomics.compiler_fence()
    if h.magic != layout.MAGIC or h.kind != KIND_RING:
        raise SegmentMismatch("the object is not a ring of ipcbus; remove it, or choose another domain")
    if h.layout_id != layout.LAYOUT_ID:
        raise layout.other_layout("the ring", h.layout_id, h.version)
    if (
        h.total_bytes != ring.size or h.capacity & (h.capacity - 1) or h.capacity < layout.PAGE
        or h.data_offset + h.capacity != ring.size or ring.mapped < h.data_offset + 2 * h.capacity
        or h.data_offset % layout.PAGE or <uint64_t>h.user_offset + h.user_bytes > h.data_offset
        or h.record_max < RECORD_HEADER or h.record_max > h.capacity // 2 or h.pacing > RECEIVER_PACED_EVICTS
    ):
        raise SegmentMismatch("the ring's header is damaged: its sizes do not fit each other; restart its source")
    return 0


cdef int check_control(Mapping control, uint32_t session_id, ControlHeader *h) except -1:
    """Copies a control block's header, which every receiver can change at any time, and checks the copy."""
    if control.size < sizeof(ControlHeader):
        raise SegmentMismatch(
            f"an object of {control.size} bytes is too small for a control block of ipcbus; remove it, or choose another domain"
        )
    memcpy(h, control.base, sizeof(ControlHeader))
    _atomics.compiler_fence()
    if h.magic != layout.MAGIC or h.kind != KIND_CONTROL:
        raise SegmentMismatch("the object is not a control block of ipcbus; remove it, or choose another domain")
    if h.layout_id != layout.LAYOUT_ID or h.session_id != session_id:
        raise SegmentMismatch(
            f"the control block has layout {h.layout_id:#010x} and session {h.session_id:08x}, expected "
            f"{layout.LAYOUT_ID:#010x} and {session_id:08x}; run the same release of ipcbus on both sides"
        )
    if (
        h.total_bytes != control.size or h.slots_max == 0 or h.slots_max > SLOTS_MAX
        or h.slots_offset % layout.CACHE_LINE or h.user_offset % 8
        or h.slots_offset + <uint64_t>h.slots_max * sizeof(Slot) > control.size
        or <uint64_t>h.user_offset + h.user_bytes > h.slots_offset
    ):
        raise SegmentMismatch(
            "the control block's header is damaged: its sizes do not fit each other; restart its source"
        )
    return 0
