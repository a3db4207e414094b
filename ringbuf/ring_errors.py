"""What can go wrong with shared objects, as types; each text names the object, the values and the cure."""

from __future__ import annotations


class RingError(Exception):
    """Root of the errors of this package."""


class NoDescriptors(RingError):
    """The process, or the system, may open no further file."""


class SegmentFull(RingError):
    """/dev/shm cannot hold the object; nothing of it was kept."""


class SegmentGone(RingError):
    """The object does not exist, or no longer does."""


class SegmentRefused(RingError):
    """The system does not let this user have the object."""


class SegmentMismatch(RingError):
    """The object was made by a program with another layout, or is not one of ours."""


class SlotsFull(RingError):
    """Every reader slot of the ring is taken by a live reader."""
