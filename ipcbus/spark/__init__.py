"""Recorded and live traffic in Spark: the data source and sink `ipcbus`, and pipelines."""
