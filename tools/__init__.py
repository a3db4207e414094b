"""The command `ipcbus`: one module a command, found by `cli`."""
