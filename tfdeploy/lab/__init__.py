"""Throw-away hosts on one machine, with real sshds, for trying tfdeploy out and for its tests."""

from tfdeploy.lab.labs import down, load, names, up
from tfdeploy.lab.protocol import Lab

__all__ = ["Lab", "down", "load", "names", "up"]
