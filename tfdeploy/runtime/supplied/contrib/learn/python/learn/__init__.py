"""A step on the way to `datasets`."""
