"""Who publishes what: registries in shared memory, one a context, and how to find and clear them."""
