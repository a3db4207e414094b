"""Shares: receivers that compete for the messages of a topic. State machines without I/O and clocks."""
