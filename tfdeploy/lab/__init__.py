"""Run throw-away hosts with real sshds on one machine, to try tfdeploy and to test it."""

from tfdeploy.lab.interpreter import find_tensorflow_python
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.labs import create_or_revive, down, load, names

__all__ = ["Lab", "create_or_revive", "down", "find_tensorflow_python", "load", "names"]
