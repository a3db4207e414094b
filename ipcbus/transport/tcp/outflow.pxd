"""No compiled module uses this one."""
