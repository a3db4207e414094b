from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <netinet/in.h>
#include <sys/socket.h>
    """
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        pass
    struct sockaddr_in:
        uint16_t sin_family, sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_family, sin6_port
        uint32_t sin6_flowinfo, sin6_scope_id
        in6_addr sin6_addr
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        uint32_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level, cmsg_type

cdef enum:
    # Datagrams a system call.
    BATCH = 64
    # Room for one control message: CMSG_SPACE(sizeof(int)).
    CONTROL_BYTES = 24
    CONTROL_WORDS = 3
    # Datagrams that the system takes as one (UDP_MAX_SEGMENTS of older kernels), and their bytes, with IPv6 headers.
    JOINED_COUNT_MAX = 64
    JOINED_BYTES_MAX = 65_000

cdef union SocketAddress:
    sockaddr_in v4
    sockaddr_in6 v6

cdef class Batched:
    cdef int fd
    cdef bint v6
    cdef uint32_t name_size, size, busy
    cdef unsigned int first, count  # of the reads in the buffer: the first that was not taken, and their end
    cdef unsigned int offset, segment  # in the first one: where its next datagram begins, and the length of each
    cdef readonly bint joins  # whether the system takes several datagrams as one (UDP_SEGMENT)
    cdef readonly unsigned int longest  # bytes of the longest of the last reads
    cdef mmsghdr *heads
    cdef char *controls
    cdef iovec *vectors
    cdef SocketAddress *names
    cdef char *room
    cdef dict packed, spelled
    cdef readonly uint64_t sent, sent_bytes, rcved, rcved_bytes, blocked, refused, too_large, truncated
    cdef bint enter(self) noexcept
    cdef void leave(self) noexcept
    cdef int refill(self, int limit)
    cdef object take(self, list found, int limit)
    cdef unsigned int read(self, unsigned int most)
    cdef const char *front(self, Py_ssize_t *length)
    cdef bint begin(self, mmsghdr *head) noexcept
    cdef void step(self) noexcept
    cdef bint same_sender(self, const SocketAddress *name) noexcept
    cdef int send_each(self, list packets, list addresses, bint same, Py_ssize_t *done) except -1
    cdef int send_batch(self, mmsghdr *heads, unsigned int count, unsigned int *done)
    cdef object address_of(self, SocketAddress *name)
    cdef object pack(self, SocketAddress *name, object address)


cdef void ask_to_split(mmsghdr *head, char *control, unsigned int segment) noexcept nogil
