"""CPython's own tests of `multiprocessing.Queue`, with `ipcbus.Queue` in its place.

Run as a program, with a start method and the names of tests.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import unittest
from typing import Any

import ipcbus

# The tests of the interpreter have no types.
of_cpython: Any = importlib.import_module("test._test_multiprocessing")


class OfIpcbus(of_cpython.ProcessesMixin, of_cpython._TestQueue, unittest.TestCase):  # type: ignore[misc]
    """The tests with the other queue."""

    ALLOWED_TYPES = ("processes",)
    Queue: Any = staticmethod(ipcbus.Queue)


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1], force=True)
    setattr(multiprocessing, "Queue", ipcbus.Queue)  # noqa: B010 - a type checker refuses an assignment
    suite = unittest.TestSuite(map(OfIpcbus, sys.argv[2:]))
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
