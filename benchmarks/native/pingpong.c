/* Round trip of one cache line between two cores.
 *
 * usage: pingpong [round trips]
 */
#include "line.h"

enum { DEFAULT_ROUND_TRIPS = 1000000, WARM_UP = 10000 };

int main(int argc, char **argv)
{
    const unsigned long round_trips = number_argument(argc, argv, 1, DEFAULT_ROUND_TRIPS);
    if (round_trips <= WARM_UP)
        refuse("usage: pingpong [round trips, more than 10000]");
    begin();
    const struct summary trip = line_round_trips(round_trips, WARM_UP, ns_per_tick());
    printf("{\"program\": \"pingpong\", \"round_trips\": %lu, \"round_trip_mean_ns\": %.1f, "
           "\"round_trip_p50_ns\": %.1f, \"round_trip_p99_ns\": %.1f}\n",
           round_trips, trip.mean, trip.p50, trip.p99);
    return EXIT_SUCCESS;
}
