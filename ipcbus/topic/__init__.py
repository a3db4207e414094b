"""The source side's topic layer: numbers, batches. No I/O, no clock, no thread."""
