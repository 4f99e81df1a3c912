"""Search a chain of checkpoints for the first bad one."""
