"""The parts of `ipcbus replay`: archives and feed files, sent again."""
