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
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len

cdef enum:
    # Datagrams a system call.
    BATCH = 32

cdef union SocketAddress:
    sockaddr_in v4
    sockaddr_in6 v6

cdef class Batched:
    cdef int fd
    cdef bint v6
    cdef uint32_t name_size, size, busy
    cdef mmsghdr *heads
    cdef iovec *vectors
    cdef SocketAddress *names
    cdef char *room
    cdef dict packed, spelled
    cdef readonly uint64_t sent, sent_bytes, rcved, rcved_bytes, blocked, refused, too_large, truncated
    cdef object receive_into(self, list found, int limit)
    cdef object take(self, list found, int i)
    cdef int send_each(self, list packets, list addresses, bint same) except -1
    cdef int send_batch(self, mmsghdr *heads, unsigned int count)
    cdef object address_of(self, SocketAddress *name, uint32_t size)
    cdef object pack(self, SocketAddress *name, object address)
