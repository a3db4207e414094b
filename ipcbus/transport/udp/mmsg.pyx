# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""recvmmsg and sendmmsg; see the stub for the docstrings."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, EMSGSIZE, ENOBUFS, errno
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from ringbuf cimport _atomics

cdef extern from *:
    """
#include <arpa/inet.h>
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
    """
    enum: AF_INET, AF_INET6, INET6_ADDRSTRLEN, MSG_CTRUNC, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC
    enum: IPPROTO_UDP, UDP_GRO, UDP_SEGMENT
    size_t CMSG_LEN(size_t length) nogil
    void *CMSG_DATA(cmsghdr *head) nogil
    cmsghdr *CMSG_FIRSTHDR(msghdr *head) nogil
    int setsockopt(int fd, int level, int name, const void *value, uint32_t size) nogil
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

cdef enum:
    SESSION_END = 8  # in every packet (wire.udp_packets)

# Most datagrams of one read: the kernel joins 64.
cdef enum:
    SPLIT_MAX = 512

# Refusals after which a call returns: an error queue must not keep it for ever.
cdef enum:
    REFUSALS_MAX = 64


def datagram_length(unsigned int length, int said):
    return split_length(length, said)


cdef unsigned int split_length(unsigned int length, int said) noexcept:
    if said <= 0 or <unsigned int>said >= length:
        return length
    return <unsigned int>said if length <= SPLIT_MAX * <unsigned int>said else 0


cdef unsigned int split_length_of(mmsghdr *head) noexcept:
    """Returns the length of each datagram of a read, of which the last may be shorter; 0 when that is not known."""
    cdef cmsghdr *control = CMSG_FIRSTHDR(&head.msg_hdr)
    cdef int said = 0
    if head.msg_hdr.msg_flags & MSG_CTRUNC:
        return 0
    if control != NULL and control.cmsg_level == IPPROTO_UDP and control.cmsg_type == UDP_GRO:
        if control.cmsg_len >= CMSG_LEN(sizeof(said)):
            memcpy(&said, CMSG_DATA(control), sizeof(said))
    return split_length(head.msg_len, said)


cdef void ask_to_split(mmsghdr *head, char *control, unsigned int segment) noexcept nogil:
    """Has the system send a head as datagrams of this length, of which the last may be shorter."""
    cdef cmsghdr *first = <cmsghdr *>control
    cdef uint16_t length = <uint16_t>segment
    first.cmsg_level, first.cmsg_type, first.cmsg_len = IPPROTO_UDP, UDP_SEGMENT, CMSG_LEN(sizeof(length))
    memcpy(CMSG_DATA(first), &length, sizeof(length))
    head.msg_hdr.msg_control = control
    head.msg_hdr.msg_controllen = CONTROL_BYTES


cdef class Batched:
    def __cinit__(self, int fd, bint v6, unsigned int size, bint joins=False):
        cdef int i, on = 1, none = 0
        self.fd = fd
        self.v6 = v6
        self.name_size = sizeof(sockaddr_in6) if v6 else sizeof(sockaddr_in)
        self.size = max(size, 1)
        self.packed = {}
        self.spelled = {}
        self.heads = <mmsghdr *>calloc(BATCH, sizeof(mmsghdr))
        self.vectors = <iovec *>calloc(BATCH, sizeof(iovec))
        self.names = <SocketAddress *>calloc(BATCH, sizeof(SocketAddress))
        self.controls = <char *>calloc(BATCH, CONTROL_BYTES)
        # Not cleared: the system gives memory only to pages that are written.
        self.room = <char *>malloc(<size_t>BATCH * self.size)
        if self.heads == NULL or self.vectors == NULL or self.names == NULL or self.room == NULL or self.controls == NULL:
            raise MemoryError()
        for i in range(BATCH):
            self.vectors[i].iov_base = self.room + <size_t>i * self.size
            self.vectors[i].iov_len = self.size
            self.heads[i].msg_hdr.msg_iov = &self.vectors[i]
            self.heads[i].msg_hdr.msg_iovlen = 1
            self.heads[i].msg_hdr.msg_name = &self.names[i]
            self.heads[i].msg_hdr.msg_control = self.controls + <size_t>i * CONTROL_BYTES
        if joins:
            # A kernel that knows neither sends and reads each datagram by itself.
            setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on))
            self.joins = setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof(none)) == 0

    def __dealloc__(self):
        free(self.heads)
        free(self.vectors)
        free(self.names)
        free(self.controls)
        free(self.room)

    def close(self):
        self.fd = -1

    def fetch(self, int limit):
        cdef int count = 0
        if self.enter():
            try:
                count = self.refill(limit)
            finally:
                self.leave()
        return count

    cdef bint enter(self) noexcept:
        """Returns whether this thread may use the buffer, until it calls `leave`: there is one for all."""
        return _atomics.cas32(&self.busy, 0, 1)

    cdef void leave(self) noexcept:
        _atomics.store_release32(&self.busy, 0)

    cdef int refill(self, int limit):
        """Reads datagrams when all before them are taken; returns how many are there."""
        if self.first == self.count:
            self.first = self.count = self.offset = 0
            if limit > 0:
                self.count = self.read(min(<unsigned int>limit, <unsigned int>BATCH))
        return <int>(self.count - self.first)

    cdef unsigned int read(self, unsigned int most):
        """Reads datagrams into the buffer; returns how many."""
        cdef int i, got, error, refusals = 0
        for i in range(<int>most):
            self.heads[i].msg_hdr.msg_namelen = sizeof(SocketAddress)
            self.heads[i].msg_hdr.msg_controllen = CONTROL_BYTES
        while refusals < REFUSALS_MAX:
            with nogil:
                got = recvmmsg(self.fd, self.heads, most, MSG_DONTWAIT, NULL)
                error = errno
            if got >= 0:
                self.longest = 0
                for i in range(got):
                    self.longest = max(self.longest, self.heads[i].msg_len)
                return <unsigned int>got
            if error == EINTR:
                continue
            if error == EAGAIN:
                break
            # An error that an earlier datagram met on its way; the next call reads on.
            self.refused += 1
            refusals += 1
            if error != ECONNREFUSED:
                break
        return 0

    cdef const char *front(self, Py_ssize_t *length):
        """Returns the first datagram that was fetched and not taken, and its length; NULL without one."""
        cdef mmsghdr *head
        while self.first < self.count:
            head = &self.heads[self.first]
            if self.offset == 0 and not self.begin(head):
                self.truncated += 1
                self.first += 1
                continue
            length[0] = <Py_ssize_t>min(self.segment, head.msg_len - self.offset)
            return self.room + <size_t>self.first * self.size + self.offset
        return NULL

    cdef bint begin(self, mmsghdr *head) noexcept:
        """Finds out where the datagrams of a read begin; returns False when it is damaged."""
        if head.msg_hdr.msg_flags & MSG_TRUNC or head.msg_len > self.size or head.msg_hdr.msg_namelen != self.name_size:
            return False
        self.segment = split_length_of(head)
        return self.segment > 0 or head.msg_len == 0

    cdef void step(self) noexcept:
        """Takes the first datagram, which `front` has returned."""
        cdef unsigned int whole = self.heads[self.first].msg_len
        cdef unsigned int length = min(self.segment, whole - self.offset)
        self.rcved += 1
        self.rcved_bytes += length
        self.offset += length
        if self.offset >= whole:
            self.first += 1
            self.offset = 0

    cdef bint same_sender(self, const SocketAddress *name) noexcept:
        """Returns whether the first datagram, which `front` has returned, is of this sender."""
        return memcmp(&self.names[self.first], name, self.name_size) == 0

    def peek(self):
        cdef Py_ssize_t length
        cdef uint32_t session = 0
        cdef const char *packet
        cdef object found = None
        if not self.enter():
            return None
        try:
            packet = self.front(&length)
            if packet != NULL:
                if length >= SESSION_END:
                    memcpy(&session, packet + SESSION_END - <int>sizeof(session), sizeof(session))
                found = self.address_of(&self.names[self.first]), ntohl(session)
        finally:
            self.leave()
        return found

    def receive(self, int limit):
        cdef list found = []
        if self.enter():
            try:
                self.take(found, limit)
            finally:
                self.leave()
        return found

    cdef object take(self, list found, int limit):
        cdef Py_ssize_t length
        cdef const char *packet
        # A read may have brought more datagrams than were asked for.
        while self.first < self.count or (len(found) < limit and self.refill(limit - <int>len(found))):
            packet = self.front(&length)
            if packet == NULL:
                continue
            address = self.address_of(&self.names[self.first])
            if address is None:
                self.truncated += 1
                self.first += 1
                self.offset = 0
            else:
                found.append((PyBytes_FromStringAndSize(packet, length), address))
                self.step()
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
        cdef unsigned int done = 0
        return self.send_batch(&head, 1, &done)

    def send_pairs(self, pairs):
        cdef tuple kept = tuple(pairs)
        cdef list packets = []
        cdef list addresses = []
        for packet, address in kept:
            packets.append(packet)
            addresses.append(address)
        cdef Py_ssize_t done = 0
        self.send_each(packets, addresses, False, &done)
        return kept[done:]

    def send_to_all(self, bytes packet not None, addresses):
        cdef Py_ssize_t done = 0
        return self.send_each([packet], list(addresses), True, &done)

    cdef int send_each(self, list packets, list addresses, bint same, Py_ssize_t *done) except -1:
        """Sends the packets, or the only one, to the addresses, until one finds no room; the caller does not share the lists."""
        cdef mmsghdr heads[BATCH]
        cdef iovec vectors[BATCH]
        cdef SocketAddress names[BATCH]
        cdef Py_ssize_t begin = 0, total = len(addresses)
        cdef unsigned int count, handled
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
            handled = 0
            sent += self.send_batch(heads, count, &handled)
            done[0] += handled
            if handled < count:
                break
        return sent

    cdef int send_batch(self, mmsghdr *heads, unsigned int count, unsigned int *done):
        """Sends datagrams until one finds no room; those that are refused for another reason are done, too."""
        cdef unsigned int begin = 0, sent = 0
        cdef int i, got, error
        while begin < count:
            with nogil:
                got = sendmmsg(self.fd, heads + begin, count - begin, MSG_DONTWAIT | MSG_NOSIGNAL)
                error = errno
            if got > 0:
                for i in range(got):
                    self.sent_bytes += heads[begin + <unsigned int>i].msg_len
                    self.sent += datagrams_of(&heads[begin + <unsigned int>i])
                begin += <unsigned int>got
                sent += <unsigned int>got
                continue
            if got < 0 and error == EINTR:
                continue
            if error == EAGAIN or error == ENOBUFS:
                # No room: the next datagrams would not find any either.
                self.blocked += 1
                break
            if heads[begin].msg_hdr.msg_controllen:
                # On the way there the system does not join datagrams, or not of this length: not again.
                self.joins = False
                break
            if error == EMSGSIZE:
                self.too_large += 1
            else:
                self.refused += 1
            begin += 1
        done[0] = begin
        return <int>sent

    cdef object address_of(self, SocketAddress *name):
        """Returns the address in the form of Python's sockets; None when it is of another family."""
        cdef char text[INET6_ADDRSTRLEN]
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


cdef inline unsigned int datagrams_of(const mmsghdr *head) noexcept:
    """Returns the datagrams of a head; those that are joined have two vectors each."""
    return <unsigned int>head.msg_hdr.msg_iovlen // 2 if head.msg_hdr.msg_controllen else 1


cdef object remember(dict known, object key, object value):
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = value
    return None
