"""What a context receives: its subscriptions, the sessions that it has joined, and notifications of sources."""
