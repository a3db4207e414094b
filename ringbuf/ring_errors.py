"""The errors of shared objects; each text names the object, the values and the cure."""

from __future__ import annotations


class RingError(Exception):
    """The base class of the errors of this package."""


class NoDescriptors(RingError):
    """The process, or the system, cannot open more files."""


class SegmentFull(RingError):
    """/dev/shm has no room for the object; no part of it is left behind."""


class SegmentGone(RingError):
    """The object does not exist, or was removed."""


class SegmentRefused(RingError):
    """The system does not allow this user to use the object."""


class SegmentMismatch(RingError):
    """A program with another layout, or another kind of program, created the object."""


class SegmentSpoiled(RingError):
    """Another program wrote into the object what cannot be true."""


class SlotsFull(RingError):
    """Live readers hold all slots of the ring."""
