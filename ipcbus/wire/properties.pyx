# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Header blocks; see the stub for the documentation."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject_IsInstance
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy

from collections.abc import Mapping

from ipcbus.errors import MessageTooLarge

KEY_MAX = 255


cdef bint is_utf8(const unsigned char *text, Py_ssize_t length) noexcept:
    cdef Py_ssize_t i
    for i in range(length):
        if text[i] >= 0x80:
            try:
                PyUnicode_DecodeUTF8(<const char *>text, length, NULL)
            except UnicodeDecodeError:
                return False
            return True
    return True


cdef Py_ssize_t block_check(const char *data, Py_ssize_t length) noexcept:
    cdef const unsigned char *at = <const unsigned char *>data
    cdef Py_ssize_t end, here = BLOCK_HEAD, key
    if length < BLOCK_HEAD:
        return 0
    end = at[0] | at[1] << 8
    if end > length or end == BLOCK_HEAD:
        return 0
    while here < end:
        key = at[here]
        if key == 0 or here + 1 + key + 2 > end or not is_utf8(at + here + 1, key):
            return 0
        here += 1 + key
        here += 2 + (at[here] | at[here + 1] << 8)
    return end if here == end else 0


cdef bytes block_copy(const char *data, Py_ssize_t length):
    cdef const unsigned char *at = <const unsigned char *>data
    cdef Py_ssize_t end = at[0] | at[1] << 8 if length > BLOCK_HEAD else 0
    cdef bytes block
    if end <= BLOCK_HEAD or end > length:
        return None
    block = PyBytes_FromStringAndSize(data, end)
    return block if block_check(PyBytes_AS_STRING(block), end) == end else None


def block_length(data):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return block_check(<const char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def unpack(bytes block not None):
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(block)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(block), here = BLOCK_HEAD, key, value
    cdef list found = []
    if end == 0:
        return ()
    if block_check(<const char *>at, end) != end:
        raise ValueError(
            f"these {end} bytes are not exactly one header block; pass the first block_length(data) bytes of a message "
            "that has headers"
        )
    while here < end:
        key = at[here]
        value = here + 1 + key + 2
        name = PyUnicode_DecodeUTF8(<const char *>at + here + 1, key, NULL)
        here = value + (at[value - 2] | at[value - 1] << 8)
        found.append((name, block[value:here]))
    return tuple(found)


cdef bytes key_bytes(key):
    cdef bytes text
    if not isinstance(key, str):
        raise TypeError(f"the name of a header must be a text, not {type(key).__name__}; give ('name', b'value')")
    try:
        text = key.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the name {key[:40]!r} of a header cannot be encoded as UTF-8 ({error.reason}); choose another"
        ) from None
    if not 0 < len(text) <= KEY_MAX:
        raise ValueError(
            f"the name {key[:40]!r} of a header has {len(text)} bytes of UTF-8, but must have 1 to {KEY_MAX}; change it"
        )
    return text


cdef bytes value_bytes(key, value):
    if isinstance(value, bytes):
        return <bytes>value
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(
            f"the value of header {key[:40]!r} is {type(value).__name__}, not bytes-like; encode it first"
        ) from None


cdef bint is_mapping(headers) except -1:
    if isinstance(headers, (tuple, list)):
        return False
    # Not isinstance(): Cython does not check the result for an exception, as of a signal handler that runs meanwhile.
    return isinstance(headers, dict) or PyObject_IsInstance(headers, Mapping)


cdef list pairs_of(headers):
    """Returns names and values as bytes."""
    cdef list found = []
    try:
        entries = iter(headers.items() if is_mapping(headers) else headers)
    except TypeError:
        raise TypeError(
            f"headers must be a mapping or a sequence of pairs, not {type(headers).__name__}; give [('name', b'value')]"
        ) from None
    for entry in entries:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise TypeError(
                f"a header must be a pair of a text and bytes, not {type(entry).__name__}; give ('name', b'value')"
            )
        key, value = entry
        found.append((key_bytes(key), value_bytes(key, value)))
    return found


def pack(headers):
    cdef list pairs = pairs_of(headers)
    cdef Py_ssize_t total = BLOCK_HEAD if pairs else 0, here = BLOCK_HEAD
    cdef bytes block, key, value
    cdef unsigned char *at
    for key, value in pairs:
        total += 1 + PyBytes_GET_SIZE(key) + 2 + PyBytes_GET_SIZE(value)
    if total > BLOCK_MAX:
        raise MessageTooLarge(
            f"the headers have {total} bytes, but the headers of one message may have {BLOCK_MAX} at most; send large "
            "data as the message itself"
        )
    block = PyBytes_FromStringAndSize(NULL, total)
    at = <unsigned char *>PyBytes_AS_STRING(block)
    if pairs:
        put_length(at, total)
    for key, value in pairs:
        at[here] = <unsigned char>PyBytes_GET_SIZE(key)
        memcpy(at + here + 1, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        here += 1 + PyBytes_GET_SIZE(key)
        put_length(at + here, PyBytes_GET_SIZE(value))
        memcpy(at + here + 2, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        here += 2 + PyBytes_GET_SIZE(value)
    return block


cdef void put_length(unsigned char *at, Py_ssize_t length) noexcept:
    at[0] = length & 0xFF
    at[1] = length >> 8
