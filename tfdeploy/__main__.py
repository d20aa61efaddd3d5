"""`python -m tfdeploy` is `tfdeploy`."""

import sys

from tfdeploy.cli.main import main

sys.exit(main())
