"""The topic layer of the sending side: sequence numbers and batches. No I/O, no clock, no thread."""
