"""Search a series of checkpoints for the first bad one."""
