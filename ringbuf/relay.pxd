from libc.stdint cimport int64_t, uint32_t

from ringbuf.ring cimport RingWriter

cdef int64_t put_bytes(
    RingWriter writer, const char *body, Py_ssize_t length, uint32_t messages, int64_t send_time_ns
) except? -2
