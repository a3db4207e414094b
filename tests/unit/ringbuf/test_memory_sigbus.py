"""Objects that are cut short under their users: pages of zeros, a mark, and nobody dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from ringbuf import layout
from ringbuf.lending import Lender
from ringbuf.memory import Mapping

PAGES = 8
SIZE = PAGES * layout.PAGE


def mapped() -> tuple[Mapping, int]:
    """A mapping, and the descriptor of its object."""
    fd = os.memfd_create("cut", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, b"\x07" * SIZE, 0)
    return Mapping(fd, SIZE, True, layout.PAGE), fd


def test_what_is_cut_off_reads_as_zeros_and_marks_the_mapping() -> None:
    mapping, fd = mapped()
    other, other_fd = mapped()
    try:
        assert not other.damaged
        os.ftruncate(fd, 2 * layout.PAGE)
        array = np.frombuffer(mapping.view(), np.uint8)
        assert array[0] == 7
        marks = [mapping.damaged]  # nothing that is missing was touched yet
        assert array[3 * layout.PAGE] == 0
        assert [*marks, mapping.damaged] == [False, True]
        array[SIZE - 1] = 9
        assert array[SIZE - 1] == 9
        assert array[2 * layout.PAGE - 1] == 7
        assert not other.damaged
        assert other.view()[0] == 7
    finally:
        os.close(fd)
        os.close(other_fd)


def test_a_lent_place_marks_the_mapping_of_its_ring() -> None:
    mapping, fd = mapped()
    loan = Lender(mapping, layout.PAGE, False).lend_at(layout.PAGE, 8)
    os.ftruncate(fd, layout.PAGE)
    os.close(fd)
    assert loan is not None
    assert bytes(memoryview(loan)) == bytes(8)
    assert mapping.damaged


def test_several_threads_may_meet_it_at_once() -> None:
    mapping, fd = mapped()
    os.ftruncate(fd, 0)
    os.close(fd)
    array = np.frombuffer(mapping.view(), np.uint8)
    start = threading.Barrier(4)
    sums: list[int] = []

    def read() -> None:
        start.wait()
        sums.append(int(array.sum()))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [0] * 4
    assert mapping.damaged


def test_a_page_of_somebody_else_is_cut_off_still(tmp_path: object) -> None:
    code = """
        import mmap, os, sys
        from ringbuf.memory import Mapping
        fd = os.memfd_create("ours"); os.ftruncate(fd, 8192); ours = Mapping(fd, 8192, True)
        other = os.memfd_create("theirs"); os.ftruncate(other, 8192)
        theirs = mmap.mmap(other, 8192); os.ftruncate(other, 0)
        print("before", flush=True)
        theirs[0]
        print("after", flush=True)
    """
    done = run(code)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "before\n")


BEFORE = "import faulthandler; faulthandler.enable()"


@pytest.mark.parametrize("before", ["", BEFORE], ids=["", "faulthandler"])
@pytest.mark.parametrize("sent", [False, True], ids=["touched", "killed"])
def test_who_handled_the_signal_before_still_does(before: str, sent: bool) -> None:
    touch = "os.kill(os.getpid(), signal.SIGBUS)" if sent else "theirs[0]"
    done = run(f"""
        import mmap, os, signal
        {before}
        from ringbuf.memory import Mapping
        fd = os.memfd_create("ours"); os.ftruncate(fd, 8192); ours = Mapping(fd, 8192, True)
        os.ftruncate(fd, 0)
        assert bytes(ours.view())[0] == 0 and ours.damaged
        other = os.memfd_create("theirs"); os.ftruncate(other, 8192)
        theirs = mmap.mmap(other, 8192); os.ftruncate(other, 0)
        {touch}
    """)
    assert done.returncode == -signal.SIGBUS
    assert done.stderr.count("Fatal Python error: Bus error") == (1 if before else 0)


def test_a_handler_of_python_that_was_there_before_is_called() -> None:
    done = run("""
        import os, signal, time
        signal.signal(signal.SIGBUS, lambda number, frame: print("told", flush=True))
        from ringbuf.memory import Mapping
        fd = os.memfd_create("ours"); os.ftruncate(fd, 8192); ours = Mapping(fd, 8192, True)
        os.kill(os.getpid(), signal.SIGBUS)
        os.ftruncate(fd, 0)
        assert bytes(ours.view())[0] == 0 and ours.damaged
        print("alive")
    """)
    assert (done.returncode, done.stdout) == (0, "told\nalive\n")


def test_a_handler_that_came_later_is_chained_with_the_next_mapping() -> None:
    done = run("""
        import faulthandler, os
        from ringbuf.memory import Mapping
        def ours():
            fd = os.memfd_create("ours"); os.ftruncate(fd, 8192)
            return fd, Mapping(fd, 8192, True)
        first = ours()
        faulthandler.enable()
        fd, mapping = ours()
        os.ftruncate(fd, 0); os.ftruncate(first[0], 0)
        assert bytes(mapping.view())[0] == 0 == bytes(first[1].view())[0]
        print("alive")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def test_the_handler_can_be_left_out() -> None:
    done = run(
        """
        import os
        from ringbuf.memory import Mapping
        fd = os.memfd_create("ours"); os.ftruncate(fd, 8192); ours = Mapping(fd, 8192, True)
        os.ftruncate(fd, 0)
        bytes(ours.view())
        """,
        IPCBUS_SIGBUS_HANDLER="0",
    )
    assert done.returncode == -signal.SIGBUS


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter."""
    lines = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", lines], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
