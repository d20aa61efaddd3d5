"""Make `python -m tfdeploy` the same as the command `tfdeploy`, which imports nothing from the
current folder.
"""

import os
import sys

# `python -m` puts the current folder first on sys.path. A file there, such as queue.py, would be
# imported in place of a standard module. With -I or -P, Python does not add the current folder.
try:
    current = os.getcwd()
except FileNotFoundError:  # the current folder was removed
    current = ""
if sys.path[:1] == [current]:
    del sys.path[0]

from tfdeploy.cli.main import program

program()
