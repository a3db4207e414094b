"""Topic resolution over the network: adverts, queries, their pacing, and resolver daemons. No I/O and no clock."""
