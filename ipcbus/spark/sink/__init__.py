"""The sink of the data source `ipcbus`: publishes frames and streams as messages."""
