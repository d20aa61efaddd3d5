"""Stores runs on the control machine. It is a cache: the hosts hold the same data."""
