/* memcpy of blocks within one process: the ceiling for large messages.
 *
 * usage: memcpy [block bytes [set bytes]]
 *
 * In cache: one source and one destination block, again and again. Set: the blocks walk through a
 * set of buffers (4 MiB, or as said), half of it sources and half destinations, as large as a ring.
 */
#include "common.h"

enum { DEFAULT_SET = 4 << 20, DEFAULT_BLOCK = 64 << 10, SAMPLES = 15 };
#define SAMPLE_BYTES (UINT64_C(1) << 28)

static double bytes_per_second(unsigned char *set, size_t half, size_t block)
{
    const uint64_t copies = SAMPLE_BYTES / block;
    const size_t blocks = half / block;
    const uint64_t start = now_ns();
    for (uint64_t copy = 0; copy < copies; copy++) {
        const size_t offset = (size_t)(copy % blocks) * block;
        memcpy(set + half + offset, set + offset, block);
        __asm__ volatile("" : : "r"(set) : "memory");
    }
    return (double)(copies * block) * 1e9 / (double)(now_ns() - start);
}

int main(int argc, char **argv)
{
    const unsigned long block = number_argument(argc, argv, 1, DEFAULT_BLOCK);
    const unsigned long set_bytes = number_argument(argc, argv, 2, DEFAULT_SET);
    if (block == 0 || block > set_bytes / 2)
        refuse("usage: memcpy [block bytes, at most half the set [set bytes]]");
    begin();
    unsigned char *set = map_shared(set_bytes);
    memset(set, 1, set_bytes);
    double cached[SAMPLES], walked[SAMPLES];
    for (unsigned index = 0; index < SAMPLES; index++) {
        cached[index] = bytes_per_second(set, block, block);
        walked[index] = bytes_per_second(set, set_bytes / 2, block);
    }
    printf("{\"program\": \"memcpy\", \"block_bytes\": %lu, \"in_cache_bytes_s\": %.0f, "
           "\"set_bytes\": %lu, \"set_bytes_s\": %.0f}\n",
           block, median(cached, SAMPLES), set_bytes, median(walked, SAMPLES));
    return EXIT_SUCCESS;
}
