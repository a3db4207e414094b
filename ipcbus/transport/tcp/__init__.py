"""Sessions over TCP: LBT-TCP, its connections and its sockets."""
