"""Find the Python that runs the agent in tests/agent. The environment variable
TFDEPLOY_TEST_AGENT_PYTHON names it; the default is the Python that runs the tests.
"""

from __future__ import annotations

import os
import sys

AGENT_PYTHON = os.environ.get("TFDEPLOY_TEST_AGENT_PYTHON") or sys.executable
