"""Stores data about runs on the control machine, as a cache: the hosts hold the same data."""
