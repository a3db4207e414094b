"""The parts of `ipcbus demo`."""
