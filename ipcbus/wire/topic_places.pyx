# cython: language_level=3, embedsignature=True
"""The topic numbers of a message in one number; the stub has the documentation."""
from libc.stdint cimport uint64_t


def pack(uint64_t first, uint64_t last):
    return place_of(first, last - first + 1)


def unpack(uint64_t place):
    cdef uint64_t first = first_of(place), count = count_of(place)
    return (first, first + count - 1) if count else None
