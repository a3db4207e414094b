"""Memory of long messages that nothing refers to any more, for the next ones.

Bytes of some MiB that are made for each message get pages from the kernel and give them back each time, which takes
longer than the copy. So the last ones stay here. Those that nothing else refers to are filled again, and those that no
message needed for some time are dropped.
"""

def copy_of(data: bytes) -> bytes:
    """Returns a copy of these bytes: from 256 KiB up to 32 MiB in spare memory of an earlier one, if there is some."""

def drop(*, unused_only: bool = False) -> int:
    """Drops this memory, or only what no message has used since the last call; returns how many objects are left."""
