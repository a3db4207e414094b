"""The parts of a context: its event loop, sending sessions, receiving sessions and discovery."""
