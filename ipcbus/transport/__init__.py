"""Transport sessions: one file per kind, one small interface."""
