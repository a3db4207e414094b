"""Where Spark looks for data sources: installed as the top-level package `pyspark_ipcbus`."""
