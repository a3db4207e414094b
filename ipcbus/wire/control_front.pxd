from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

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

typedef struct {
    uint64_t number;
    int64_t send_time_ns;
    uint64_t opening, place;
    uint32_t block, value;
} ipcbus_EntryFront;
_Static_assert(sizeof(ipcbus_EntryFront) == 40, "EntryFront size");
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

    # Before the header block and the value of an entry of a GMD_RESENT, which are padded to 8 bytes.
    ctypedef struct EntryFront "ipcbus_EntryFront":
        uint64_t number
        int64_t send_time_ns
        uint64_t opening
        uint64_t place
        uint32_t block
        uint32_t value

cdef class FrameTaker:
    cdef object callback

    cdef bint takes(self, const ControlFront *front) noexcept
    cdef long take(self, object peer, const ControlFront *front, bytes rest) except -1
