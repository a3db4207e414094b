"""The writing half of the data source `ipcbus`: frames and streams published as messages."""
