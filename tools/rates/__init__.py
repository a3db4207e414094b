"""Message rates, computed from the statistics."""
