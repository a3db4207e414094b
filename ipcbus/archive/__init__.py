"""Recorded traffic: recorders write it, players send it again, and readers check and read it."""

from ipcbus.archive.archive import Archive
from ipcbus.archive.archive_layout import ROW
from ipcbus.archive.cursors import Cursor, Cursors
from ipcbus.archive.log import Log
from ipcbus.archive.log_limits import Limits
from ipcbus.archive.log_writer import LogWriter
from ipcbus.archive.player import Player
from ipcbus.archive.recorder import Recorder, RecorderStats
from ipcbus.archive.retention import Retained
from ipcbus.archive.segments import Chunk, Segment

__all__ = [
    "ROW",
    "Archive",
    "Chunk",
    "Cursor",
    "Cursors",
    "Limits",
    "Log",
    "LogWriter",
    "Player",
    "Recorder",
    "RecorderStats",
    "Retained",
    "Segment",
]
