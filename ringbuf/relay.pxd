"""Nothing of it is called from other compiled code."""
