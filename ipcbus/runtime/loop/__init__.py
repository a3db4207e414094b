"""The event loop of a context: which thread drives it, how it sleeps, its timers and its UDP endpoints."""
