"""Mappings of shared objects that live as long as anybody still looks at them."""

class Mapping:
    """A shared object in this process's address space.

    The memory is given back when the last reference goes: the mapping itself, a view from `view()`, or an array
    made from one. A view that outlives its ring therefore shows old or overwritten bytes but never crashes.
    """

    size: int
    """Bytes of the object."""
    writable: bool

    @property
    def damaged(self) -> bool:
        """Whether the object was cut short: a page that was touched was missing, and is a private page of zeros now.

        Without the handler of SIGBUS that sees to this (environment variable `IPCBUS_SIGBUS_HANDLER=0`) touching such a
        page ends the process.
        """

    def __init__(self, fd: int, size: int, writable: bool, twice_from: int = 0, reserve: int = 0) -> None:
        """Maps `size` bytes of a shared object.

        Args:
            fd: open descriptor of the object; may be closed afterwards.
            size: bytes to map from the beginning.
            writable: maps for reading and writing, else for reading only.
            twice_from: when not 0, the bytes from here (a multiple of the page) to `size` are mapped a second time
                right behind the first, so that what runs over the end continues at `twice_from`.
            reserve: when larger than `size`, this much address space is taken, so that the object may grow in
                place up to it; bytes past the object's end must not be touched before it has grown.

        Raises:
            OSError: the system refused.
        """

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """Returns the bytes from `offset`, `length` of them (to the end by default); writable as the mapping is."""
