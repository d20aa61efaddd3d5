"""Run throw-away hosts with real sshds on one machine, to try tfdeploy and to test it."""

from tfdeploy.lab.interpreter import find_python
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.labs import down, load, names, up

__all__ = ["Lab", "down", "find_python", "load", "names", "up"]
