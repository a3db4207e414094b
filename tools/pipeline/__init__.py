"""The parts of `ipcbus pipeline`: a Spark job, its progress and its output."""
