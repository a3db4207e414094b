"""System calls on files for compiled code, and those that Python does not offer."""

def allocate(fd: int, offset: int, length: int) -> None:
    """Reserves room on the disk for a part of a file; the size of the file does not change.

    Raises:
        OSError: the system refuses; EOPNOTSUPP where the file system cannot do it.
    """
