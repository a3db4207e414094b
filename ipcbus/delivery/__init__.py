"""The topic layer of the receiving side: demux, delivery controllers, losses, events. No I/O, no thread."""
