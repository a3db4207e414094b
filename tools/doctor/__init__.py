"""The checks of `ipcbus doctor`."""
