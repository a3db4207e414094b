"""Copies and checks the headers of the two shared objects before anything else is read; for compiled code only."""
