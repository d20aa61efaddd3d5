"""What runs on the hosts: standard library only, Python 3.8. See docs/agent-protocol.md."""

import os

# `python AGENT_DIR` starts it
AGENT_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
