"""Find the Python that runs the agent in tests/agent: TFDEPLOY_TEST_AGENT_PYTHON, or else the
Python that runs the tests.
"""

from __future__ import annotations

import os
import sys

AGENT_PYTHON = os.environ.get("TFDEPLOY_TEST_AGENT_PYTHON") or sys.executable
