"""Topic resolution: finds the sessions that carry a topic, on this host and over the network."""
