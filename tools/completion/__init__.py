"""Completion of command lines in a shell."""
