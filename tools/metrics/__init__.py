"""The metrics that `ipcbus export` serves to Prometheus."""
