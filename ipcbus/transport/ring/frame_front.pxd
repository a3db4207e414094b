# The front of a message in one frame: the header of the frame (recovery.control_channel), and what the message begins with.
from libc.stdint cimport uint8_t, uint16_t, uint32_t

from ipcbus.wire.control_front cimport ControlFront

cdef extern from *:
    """
typedef struct {
    uint8_t lane, first;
    uint16_t reserved;
    uint32_t remaining;
    ipcbus_ControlFront front;
} ipcbus_FrameFront;
_Static_assert(sizeof(ipcbus_FrameFront) == 24, "FrameFront size");
    """
    ctypedef struct FrameFront "ipcbus_FrameFront":
        uint8_t lane
        uint8_t first
        uint16_t reserved
        uint32_t remaining
        ControlFront front

cdef enum:
    FRAME_HEADER = 8            # `remaining` counts from its end
