"""Guaranteed message delivery: the area that keeps the copies, and the state of senders and receivers."""
