"""Recorded traffic: what writes, keeps, checks and reads it."""

from ipcbus.archive.archive import Archive
from ipcbus.archive.cursors import Cursor, Cursors
from ipcbus.archive.limits import Limits
from ipcbus.archive.log import Log
from ipcbus.archive.log_writer import LogWriter
from ipcbus.archive.player import Player
from ipcbus.archive.recorder import Recorder, RecorderStats
from ipcbus.archive.retention import Retained
from ipcbus.archive.segments import Chunk
from ipcbus.archive.summary import Segment

__all__ = [
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
