"""`python -m tfdeploy` is `tfdeploy`, which imports nothing from the current folder."""

import os
import sys

# `python -m` puts the current folder first, where a queue.py of the user's may lie. -I and -P do
# not.
if os.path.exists(".") and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from tfdeploy.cli.main import program

program()
