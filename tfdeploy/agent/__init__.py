"""The agent is the part of tfdeploy that runs on the hosts. It needs only Python's standard library
and supports Python 3.8. See docs/agent-protocol.md."""

import os

# The folder of the agent's code: `python AGENT_DIR` starts the agent.
AGENT_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
