"""Sessions over rings in shared memory: LBT-IPC and LBT-SMX."""
