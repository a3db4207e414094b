"""What makes a context run: who drives it, what it sends on, what it has joined."""
