# CRC-32C, by the instruction of the processor where it has one.
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

cdef extern from *:
    """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
static uint32_t ib_crc32c_by_bits(uint32_t crc, const unsigned char *at, size_t n) {
    while (n--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
    }
    return crc;
}
#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static uint32_t ib_crc32c_by_words(uint32_t crc, const unsigned char *at, size_t n) {
    uint64_t sum = crc, word;
    for (; n >= 8; n -= 8, at += 8) {
        memcpy(&word, at, 8);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    while (n--) sum = __builtin_ia32_crc32qi((uint32_t)sum, *at++);
    return (uint32_t)sum;
}
#define IB_CRC32C(crc, at, n) \\
    (__builtin_cpu_supports("sse4.2") ? ib_crc32c_by_words(crc, at, n) : ib_crc32c_by_bits(crc, at, n))
#else
#define IB_CRC32C(crc, at, n) ib_crc32c_by_bits(crc, at, n)
#endif
static inline uint32_t ib_crc32c(uint32_t crc, const void *at, size_t n) {
    return ~IB_CRC32C(~crc, (const unsigned char *)at, n);
}
    """
    uint32_t crc32c "ib_crc32c"(uint32_t crc, const void *at, size_t n) noexcept nogil
