"""The version, in the one place where it is written; the build reads it too."""

__version__ = "0.1.0"
