"""System calls on files for compiled code, and those that Python does not offer."""

def allocate(fd: int, offset: int, length: int) -> None:
    """Reserves room on the disk for a part of a file; the size of the file does not change.

    Raises:
        OSError: the system refuses; EOPNOTSUPP where the file system cannot do it.
    """

def links(fd: int) -> int:
    """Returns how many names a file has.

    `os.fstat` asks for the times of the file, too; after that, Linux notes the time of the next write exactly, and its
    sync takes 70 us longer.

    Raises:
        OSError: the system refuses.
    """
