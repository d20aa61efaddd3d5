"""Runs as the control machine remembers them. A cache: the hosts hold all of it too."""
