"""Mappings of shared objects that live as long as their views."""

class Mapping:
    """A shared object in this process's address space.

    The memory is unmapped with the last reference: the mapping itself, a view from `view()`, or an array made from a
    view. So a view that outlives its ring shows old or overwritten bytes but never crashes.
    """

    size: int
    """Bytes of the object."""
    writable: bool

    @property
    def damaged(self) -> bool:
        """Whether the object was cut short: a page that was touched was missing, and private zeros took its place.

        The handler of SIGBUS does this. Without it (environment variable `IPCBUS_SIGBUS_HANDLER=0`) touching such a
        page ends the process.
        """

    def __init__(self, fd: int, size: int, writable: bool, twice_from: int = 0, reserve: int = 0) -> None:
        """Maps `size` bytes of a shared object.

        Args:
            fd: open descriptor of the object; it may be closed afterwards.
            size: bytes to map from the beginning.
            writable: maps for reading and writing; otherwise for reading only.
            twice_from: when not 0, the bytes from here (a multiple of the page) to `size` are mapped a second time
                right behind the first time, so that bytes beyond the end are those from `twice_from` on.
            reserve: when larger than `size`, the bytes of address space to take, so that the object may grow in place;
                bytes past the object's end must not be touched before it has grown.

        Raises:
            OSError: the system refused the mapping.
        """

    def touch(self) -> bool:
        """Lets the system enter all pages now, so that no access to them waits for it; not with `reserve`.

        Returns:
            Whether it did; Linux before 5.14 cannot, nor can an object that was cut short.
        """

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """Returns `length` bytes from `offset` on (by default all), writable if the mapping is writable."""
