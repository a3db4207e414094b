"""Bytes and values: message headers, topic lines, adverts. No state, no I/O."""
