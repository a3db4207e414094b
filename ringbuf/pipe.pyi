"""A pipe: one shared object with two bounded queues of frames, one each way, between two processes.

Each queue has one writer and one reader. Neither of them waits for the other one. `layout` has the bytes.

Both processes can write every byte of the object. So each side keeps its own positions, reads each word of the other
side once, and checks the word before it uses it. A word that contradicts what is known breaks the pipe: from then on
nothing of the other side is believed. Frames are copied out before they are checked by the layer above.
"""

from collections.abc import Callable, Sized

from ringbuf.shared_words import WatchedWord

class Pipe:
    """One end of a pipe (recovery.frame_link.FrameLink). Any thread may put; one thread at a time takes."""

    frame_max: int
    """The length of the longest frame in bytes: a quarter of a queue, with what a frame costs."""

    broken: str
    """The reason why the pipe cannot be used any more; empty while it can be used."""

    room_wanted: bool
    """Whether the other side waits for room that the last `take` has made: call it."""

    checkpoint: Callable[[str], object] | None
    """For tests: called with the name of each step of `put` and `take` after the step."""

    def put(self, frame: bytes) -> bool:
        """Appends a frame to the queue to the other side.

        Returns:
            False when there is no room now, when the other side has closed, or when the pipe is broken.

        Raises:
            ValueError: the frame is empty, or longer than `frame_max`.
        """

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """As `put`, but does nothing and returns False while `waiting` has something; any thread may call this.

        Args:
            frame: a whole message.
            waiting: the messages that the thread that drives the context puts; it has one as long as only some of its
                frames are in the pipe.
        """

    def push(self) -> None:
        """Does nothing: `put` has sent the frame. Links that gather frames send them here."""

    def take(self) -> bytes | None:
        """Returns the next frame of the other side; None when there is no frame now.

        When the other side has closed and all its frames are taken, the pipe is broken.
        """

    @property
    def is_unread(self) -> bool:
        """Whether the other side still uses the pipe, and has not taken all frames yet."""

    def ready(self) -> bool:
        """Returns whether there is something to do: a frame or the end to take, or room that the last `put` missed."""

    def watched(self) -> WatchedWord:
        """Returns the word that changes with each frame of the other side, for a `Poller`."""

    def close(self) -> None:
        """Ends the pipe: the other side can still take the frames that are there, and then finds it broken."""

    def abandon(self) -> None:
        """Ends the use of the pipe without a word to the other side; for a child process after a fork."""

def create_pipe(name: str, *, queue_bytes: int, session_id: int, slot: int, generation: int, group: str = "") -> Pipe:
    """Makes the object of a pipe, allocated in full, and returns the end of the source.

    Args:
        name: name of the object.
        queue_bytes: size of each queue in bytes; the next power of two is used, 4096 at least.
        session_id: the session that the pipe belongs to.
        slot: the slot of the receiver.
        generation: the generation of the slot.
        group: system group that may use the object too; empty for none.

    Raises:
        FileExistsError: an object with this name exists.
        ringbuf.ring_errors.RingError, OSError: as `segment.create` and `segment.map_fd`.
    """

def join_pipe(name: str, *, session_id: int, slot: int, generation: int, owner_uid: int) -> Pipe:
    """Opens the object of a pipe, and returns the end of the receiver.

    Args:
        name: name of the object.
        session_id: the session that the pipe has to belong to.
        slot: the slot of the receiver.
        generation: the generation of the slot.
        owner_uid: the user that has to own the object.

    Raises:
        ringbuf.ring_errors.SegmentGone: there is no such object.
        ringbuf.ring_errors.SegmentRefused: this user may not open it, or another user owns it.
        ringbuf.ring_errors.SegmentMismatch: it is not the pipe of this slot and generation, or it is damaged.
    """
