"""Sessions over UDP: LBT-RU and LBT-RM, their sockets, and the UDP twin of a ring session."""
