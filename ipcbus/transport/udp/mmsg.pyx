# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""recvmmsg and sendmmsg; see the stub for the docstrings."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, EMSGSIZE, ENOBUFS, errno
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from ringbuf cimport _atomics

cdef extern from *:
    """
#include <arpa/inet.h>
    """
    enum: AF_INET, AF_INET6, INET6_ADDRSTRLEN, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC
    int recvmmsg(int fd, mmsghdr *heads, unsigned int count, int flags, void *timeout) nogil
    int sendmmsg(int fd, mmsghdr *heads, unsigned int count, int flags) nogil
    const char *inet_ntop(int family, const void *source, char *text, uint32_t size) nogil
    int inet_pton(int family, const char *text, void *target) nogil
    uint16_t htons(uint16_t value) nogil
    uint16_t ntohs(uint16_t value) nogil
    uint32_t htonl(uint32_t value) nogil
    uint32_t ntohl(uint32_t value) nogil

# Addresses in each of the two caches; a full cache is cleared.
cdef enum:
    REMEMBERED = 4096

# Refusals after which a call returns: an error queue must not keep it for ever.
cdef enum:
    REFUSALS_MAX = 64


cdef class Batched:
    def __cinit__(self, int fd, bint v6, unsigned int size):
        cdef int i
        self.fd = fd
        self.v6 = v6
        self.name_size = sizeof(sockaddr_in6) if v6 else sizeof(sockaddr_in)
        self.size = max(size, 1)
        self.packed = {}
        self.spelled = {}
        self.heads = <mmsghdr *>calloc(BATCH, sizeof(mmsghdr))
        self.vectors = <iovec *>calloc(BATCH, sizeof(iovec))
        self.names = <SocketAddress *>calloc(BATCH, sizeof(SocketAddress))
        # Not cleared: the system gives memory only to pages that are written.
        self.room = <char *>malloc(<size_t>BATCH * self.size)
        if self.heads == NULL or self.vectors == NULL or self.names == NULL or self.room == NULL:
            raise MemoryError()
        for i in range(BATCH):
            self.vectors[i].iov_base = self.room + <size_t>i * self.size
            self.vectors[i].iov_len = self.size
            self.heads[i].msg_hdr.msg_iov = &self.vectors[i]
            self.heads[i].msg_hdr.msg_iovlen = 1
            self.heads[i].msg_hdr.msg_name = &self.names[i]

    def __dealloc__(self):
        free(self.heads)
        free(self.vectors)
        free(self.names)
        free(self.room)

    def close(self):
        self.fd = -1

    def receive(self, int limit):
        cdef list found = []
        # There is one buffer: two threads never read into it at a time.
        if not _atomics.cas32(&self.busy, 0, 1):
            return found
        try:
            self.receive_into(found, limit)
        finally:
            _atomics.store_release32(&self.busy, 0)
        return found

    cdef object receive_into(self, list found, int limit):
        cdef int i, got, error, refusals = 0
        cdef unsigned int count
        while len(found) < limit and refusals < REFUSALS_MAX:
            count = <unsigned int>min(limit - <int>len(found), <int>BATCH)
            for i in range(<int>count):
                self.heads[i].msg_hdr.msg_namelen = sizeof(SocketAddress)
            with nogil:
                got = recvmmsg(self.fd, self.heads, count, MSG_DONTWAIT, NULL)
                error = errno
            if got < 0:
                if error == EINTR:
                    continue
                if error == EAGAIN:
                    return None
                # An error that an earlier datagram met on its way; the next call reads on.
                self.refused += 1
                refusals += 1
                if error != ECONNREFUSED:
                    return None
                continue
            for i in range(got):
                self.take(found, i)
            if got < <int>count:
                return None
        return None

    cdef object take(self, list found, int i):
        if self.heads[i].msg_hdr.msg_flags & MSG_TRUNC or self.heads[i].msg_len > self.size:
            self.truncated += 1
            return None
        address = self.address_of(&self.names[i], self.heads[i].msg_hdr.msg_namelen)
        if address is None:
            self.truncated += 1
            return None
        self.rcved += 1
        self.rcved_bytes += self.heads[i].msg_len
        found.append((PyBytes_FromStringAndSize(self.room + <size_t>i * self.size, self.heads[i].msg_len), address))
        return None

    def send(self, bytes packet not None, address):
        cdef mmsghdr head
        cdef iovec vector
        cdef SocketAddress name
        self.pack(&name, address)
        vector.iov_base = PyBytes_AS_STRING(packet)
        vector.iov_len = <size_t>PyBytes_GET_SIZE(packet)
        memset(&head, 0, sizeof(head))
        head.msg_hdr.msg_iov = &vector
        head.msg_hdr.msg_iovlen = 1
        head.msg_hdr.msg_name = &name
        head.msg_hdr.msg_namelen = self.name_size
        return self.send_batch(&head, 1)

    def send_pairs(self, pairs):
        cdef tuple kept = tuple(pairs)
        cdef list packets = []
        cdef list addresses = []
        for packet, address in kept:
            packets.append(packet)
            addresses.append(address)
        return self.send_each(packets, addresses, False)

    def send_to_all(self, bytes packet not None, addresses):
        return self.send_each([packet], list(addresses), True)

    cdef int send_each(self, list packets, list addresses, bint same) except -1:
        """Sends the packets, or the only one, to the addresses; the caller does not share the lists."""
        cdef mmsghdr heads[BATCH]
        cdef iovec vectors[BATCH]
        cdef SocketAddress names[BATCH]
        cdef Py_ssize_t begin = 0, total = len(addresses)
        cdef unsigned int count
        cdef int sent = 0
        cdef bytes packet
        memset(heads, 0, sizeof(heads))
        while begin < total:
            count = 0
            while count < BATCH and begin < total:
                packet = packets[0] if same else packets[begin]
                if packet is None:
                    raise TypeError("a packet is bytes, not None")
                self.pack(&names[count], addresses[begin])
                vectors[count].iov_base = PyBytes_AS_STRING(packet)
                vectors[count].iov_len = <size_t>PyBytes_GET_SIZE(packet)
                heads[count].msg_hdr.msg_iov = &vectors[count]
                heads[count].msg_hdr.msg_iovlen = 1
                heads[count].msg_hdr.msg_name = &names[count]
                heads[count].msg_hdr.msg_namelen = self.name_size
                count += 1
                begin += 1
            sent += self.send_batch(heads, count)
        return sent

    cdef int send_batch(self, mmsghdr *heads, unsigned int count):
        cdef unsigned int begin = 0, sent = 0
        cdef int i, got, error
        while begin < count:
            with nogil:
                got = sendmmsg(self.fd, heads + begin, count - begin, MSG_DONTWAIT | MSG_NOSIGNAL)
                error = errno
            if got > 0:
                for i in range(got):
                    self.sent_bytes += heads[begin + <unsigned int>i].msg_len
                self.sent += <unsigned int>got
                begin += <unsigned int>got
                sent += <unsigned int>got
                continue
            if got < 0 and error == EINTR:
                continue
            if error == EAGAIN or error == ENOBUFS:
                # No room: the next datagrams would not find any either.
                self.blocked += count - begin
                break
            if error == EMSGSIZE:
                self.too_large += 1
            else:
                self.refused += 1
            begin += 1
        return <int>sent

    cdef object address_of(self, SocketAddress *name, uint32_t size):
        """Returns the address in the form of Python's sockets; None when it is of another family."""
        cdef char text[INET6_ADDRSTRLEN]
        if size != self.name_size:
            return None
        key = PyBytes_FromStringAndSize(<char *>name, self.name_size)
        known = self.spelled.get(key)
        if known is not None:
            return known
        if self.v6:
            if name.v6.sin6_family != AF_INET6 or inet_ntop(AF_INET6, &name.v6.sin6_addr, text, sizeof(text)) == NULL:
                return None
            port, flow = ntohs(name.v6.sin6_port), ntohl(name.v6.sin6_flowinfo)
            address = ((<bytes>text).decode(), port, flow, name.v6.sin6_scope_id)
        else:
            if name.v4.sin_family != AF_INET or inet_ntop(AF_INET, &name.v4.sin_addr, text, sizeof(text)) == NULL:
                return None
            address = ((<bytes>text).decode(), ntohs(name.v4.sin_port))
        remember(self.spelled, key, address)
        return address

    cdef object pack(self, SocketAddress *name, object address):
        cdef bytes known = self.packed.get(address)
        if known is None:
            memset(name, 0, sizeof(SocketAddress))
            host = (<str?>address[0]).partition("%")[0].encode()
            if self.v6:
                name.v6.sin6_family = AF_INET6
                name.v6.sin6_port = htons(address[1])
                if len(address) > 2:
                    name.v6.sin6_flowinfo = htonl(address[2])
                    name.v6.sin6_scope_id = address[3]
                if inet_pton(AF_INET6, host, &name.v6.sin6_addr) != 1:
                    raise ValueError(f"{address!r} is not an IPv6 address with a port")
            else:
                name.v4.sin_family = AF_INET
                name.v4.sin_port = htons(address[1])
                if inet_pton(AF_INET, host, &name.v4.sin_addr) != 1:
                    raise ValueError(f"{address!r} is not an IPv4 address with a port")
            remember(self.packed, address, PyBytes_FromStringAndSize(<char *>name, self.name_size))
        else:
            memcpy(name, PyBytes_AS_STRING(known), self.name_size)
        return None


cdef object remember(dict known, object key, object value):
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = value
    return None
