"""How a context finds the sessions of other contexts: their registries, and topic resolution over the network."""
