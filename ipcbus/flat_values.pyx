# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Bytes of flat containers; the stub has the documentation."""
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact, PyFloat_FromDouble
from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_CheckExact, PyLong_FromLongLong
from cpython.tuple cimport PyTuple_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    FLAT_MAX = 1024
    BEFORE_BYTES = 5    # a letter and a length


cdef Py_ssize_t put_value(char *place, Py_ssize_t room, object value) except -1:
    """Writes a value; returns its bytes, or 0 for a value that does not go this way."""
    cdef Py_ssize_t size
    cdef const char *text
    cdef int overflow = 0
    cdef int64_t number
    cdef double real
    cdef uint32_t length
    if room < 1 + 8:
        return 0
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return 0
        place[0] = c"i"
        memcpy(place + 1, &number, 8)
        return 1 + 8
    if PyFloat_CheckExact(value):
        real = PyFloat_AS_DOUBLE(value)
        place[0] = c"f"
        memcpy(place + 1, &real, 8)
        return 1 + 8
    if value is None or value is True or value is False:
        place[0] = c"n" if value is None else c"t" if value is True else c"o"
        return 1
    if PyUnicode_CheckExact(value):
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            return 0
        place[0] = c"u"
    elif PyBytes_CheckExact(value):
        text, size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        place[0] = c"b"
    else:
        return 0
    if size > room - BEFORE_BYTES:
        return 0
    length = <uint32_t>size
    memcpy(place + 1, &length, 4)
    memcpy(place + BEFORE_BYTES, text, size)
    return BEFORE_BYTES + size


def encode_flat(values):
    cdef char place[FLAT_MAX]
    cdef Py_ssize_t at = 0, n
    if PyTuple_CheckExact(values) or PyList_CheckExact(values):
        for value in values:
            n = put_value(place + at, FLAT_MAX - at, value)
            if n == 0:
                return None
            at += n
    else:
        for key, value in (<dict>values).items():
            n = put_value(place + at, FLAT_MAX - at, key)
            if n == 0:
                return None
            at += n
            n = put_value(place + at, FLAT_MAX - at, value)
            if n == 0:
                return None
            at += n
    return PyBytes_FromStringAndSize(place, at)


def decode_flat(bytes data not None):
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(data)
    cdef list found = []
    cdef int64_t number
    cdef double real
    cdef uint32_t length
    cdef char letter
    while at < end:
        letter = start[at]
        at += 1
        if letter == c"n" or letter == c"t" or letter == c"o":
            found.append(None if letter == c"n" else letter == c"t")
            continue
        if letter == c"i" or letter == c"f":
            if end - at < 8:
                raise ValueError(f"{end - at} bytes are too few for a number")
            if letter == c"i":
                memcpy(&number, start + at, 8)
                found.append(PyLong_FromLongLong(number))
            else:
                memcpy(&real, start + at, 8)
                found.append(PyFloat_FromDouble(real))
            at += 8
            continue
        if letter != c"u" and letter != c"b":
            raise ValueError(f"{letter} is not the letter of a value")
        if end - at < 4:
            raise ValueError(f"{end - at} bytes are too few for a length")
        memcpy(&length, start + at, 4)
        at += 4
        if <Py_ssize_t>length > end - at:
            raise ValueError(f"{end - at} bytes are too few for a text of {length}")
        if letter == c"u":
            found.append(PyUnicode_DecodeUTF8(start + at, length, NULL))
        else:
            found.append(PyBytes_FromStringAndSize(start + at, length))
        at += length
    return found
