from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
typedef struct {
    uint8_t kind, detail;
    uint16_t zeros;
    uint32_t topic;
    uint64_t number;
} ipcbus_ControlFront;
_Static_assert(sizeof(ipcbus_ControlFront) == 16, "ControlFront size");

typedef struct {
    uint64_t incarnation, first, last;
} ipcbus_AckRange;
    """
    ctypedef struct ControlFront "ipcbus_ControlFront":
        uint8_t kind
        uint8_t detail
        uint16_t zeros
        uint32_t topic
        uint64_t number

    # Behind the front of a GMD_ACK with one range.
    ctypedef struct AckRange "ipcbus_AckRange":
        uint64_t incarnation
        uint64_t first
        uint64_t last

cdef class FrameTaker:
    cdef object callback

    cdef bint takes(self, const ControlFront *front) noexcept
    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1
