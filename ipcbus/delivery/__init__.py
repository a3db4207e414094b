"""The receive side's topic layer: demux, delivery controllers, loss, events. No I/O, no thread."""
