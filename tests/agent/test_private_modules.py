"""Test that the agent starts without private modules of Python's standard library, such as `_json`.
A newer version of Python may lack them.
"""

from __future__ import annotations

import subprocess

from support.agent.interpreter import AGENT_PYTHON
from support.floors import PRIVATE, ROOT

WITHOUT = """
import builtins, sys
own_import, private = builtins.__import__, sys.argv[1].split()
def refuse(name, globals=None, *rest):
    if name in private and (globals or {}).get("__name__", "").startswith("tfdeploy."):
        raise ImportError(name)
    return own_import(name, globals, *rest)
builtins.__import__ = refuse
sys.path.insert(0, ".")
from tfdeploy.agent import json_text, ownership
from tfdeploy.agent.serve import server
assert json_text.loads(json_text.encode({"a": [1.5, None]})) == {"a": [1.5, None]}
assert ownership.blake2b.__module__ == "_blake2" and server.signal.__name__ == "signal"
assert "json" in sys.modules and "hashlib" in sys.modules
"""


def test_the_agent_starts_without_private_modules() -> None:
    subprocess.run(
        [AGENT_PYTHON, "-S", "-E", "-W", "error", "-c", WITHOUT, " ".join(PRIVATE)],
        cwd=ROOT,
        check=True,
    )
