"""`python -m tfdeploy` is `tfdeploy`."""

from tfdeploy.cli.main import program

program()
