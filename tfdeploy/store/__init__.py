"""Runs as the control machine remembers them. A cache: everything can be found again from the hosts."""
