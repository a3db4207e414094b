"""Recorded traffic: what writes, keeps, checks and reads it."""
