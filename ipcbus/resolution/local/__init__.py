"""Topic resolution on one host: the registries that contexts keep in shared memory, and the cleanup of dead ones."""
