from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

# The header of a DATA packet (udp_packets.DATA_HEAD), in network byte order.
cdef extern from *:
    """
#include <endian.h>
#include <stdint.h>
typedef struct __attribute__((packed)) {
    uint8_t version, type;
    uint16_t flags;
    uint32_t session;
    uint64_t number;
    uint32_t back, messages;
    uint64_t send_time;
} ipcbus_DataFront;
_Static_assert(sizeof(ipcbus_DataFront) == 32, "DataFront size");
    """
    ctypedef struct DataFront "ipcbus_DataFront":
        uint8_t version, type
        uint16_t flags
        uint32_t session
        uint64_t number
        uint32_t back, messages
        uint64_t send_time
    uint64_t htobe64(uint64_t value) nogil
    uint32_t htobe32(uint32_t value) nogil
    uint64_t be64toh(uint64_t value) nogil
    uint32_t be32toh(uint32_t value) nogil


cdef inline bint is_data(
    const DataFront *front, uint8_t version, uint8_t data, uint32_t session_id, uint64_t number
) noexcept nogil:
    """Returns whether it is the header of this datagram of a session, without flags; the constants are of udp_packets."""
    return (
        front.version == version
        and front.type == data
        and front.flags == 0
        and be32toh(front.session) == session_id
        and be64toh(front.number) == number
    )


cdef inline void fill(
    DataFront *front, uint8_t version, uint8_t data, uint32_t session_id, uint64_t number, uint32_t back,
    uint32_t messages, uint64_t send_time_ns,
) noexcept nogil:
    """Writes the header of a datagram."""
    front.version, front.type, front.flags = version, data, 0
    front.session = htobe32(session_id)
    front.number = htobe64(number)
    front.back, front.messages = htobe32(back), htobe32(messages)
    front.send_time = htobe64(send_time_ns)
