"""Files that survive a crash: one thin layer for every write, sync and rename, and checksummed records."""
