"""What a context sends: its sessions, and what a send does when the ring is full."""
