"""The commands of `ipcbus`, one module each."""
