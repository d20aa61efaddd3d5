"""Test the rules of the architecture. For each rule, one source text breaks the rule, and another
one does not.
"""

from __future__ import annotations

import pytest

from support.floors import RULES

PLANTED = [
    # (rule that is broken, path, source text)
    ("rooms", "tfdeploy/agent/run/x.py", "from tfdeploy.agent.serve.lock import acquire_lock"),
    ("rooms", "tfdeploy/agent/run/x.py", "def f():\n    from tfdeploy.agent.minder import decide"),
    ("rooms", "tfdeploy/agent/serve/env/x.py", "from tfdeploy.agent.serve.run import prepare"),
    (
        "rooms",
        "tfdeploy/agent/serve/lock.py",
        "from tfdeploy.agent.serve.release.staging import Begun",
    ),
    ("rooms", "tfdeploy/agent/host/x.py", "from tfdeploy.agent.log import reader"),
    ("rooms", "tfdeploy/agent/wire.py", "from tfdeploy.agent.host.atomic import read_json"),
    ("rooms", "tfdeploy/operations/copy/x.py", "from tfdeploy.operations.launch import launch"),
    ("rooms", "tfdeploy/operations/outcomes.py", "from tfdeploy.operations.launch import launch"),
    ("imports", "tfdeploy/model/x.py", "import tfdeploy.config"),
    ("imports", "tfdeploy/model/x.py", "from tfdeploy import config"),
    ("imports", "tfdeploy/model/x.py", "from .. import config"),
    ("imports", "tfdeploy/model/x.py", "from ..config.node import Node"),
    ("imports", "tfdeploy/model/x.py", "def f():\n    from tfdeploy.ui import plain"),
    ("imports", "tfdeploy/config/x.py", "from tfdeploy.planning.plan import make_plan"),
    ("imports", "tfdeploy/config/x.py", "import tfdeploy.tree"),
    ("imports", "tfdeploy/planning/x.py", "from tfdeploy.config import load_job"),
    ("imports", "tfdeploy/planning/x.py", "from tfdeploy.transport.protocols import Fleet"),
    ("imports", "tfdeploy/store/x.py", "from tfdeploy.transport.protocols import Fleet"),
    ("imports", "tfdeploy/operations/x.py", "from tfdeploy.ui import plain"),
    ("imports", "tfdeploy/operations/x.py", "import rich.console"),
    ("imports", "tfdeploy/operations/x.py", "def f():\n    import paramiko"),
    ("imports", "tfdeploy/ui/x.py", "from tfdeploy.store.runs import RunStore"),
    ("imports", "tfdeploy/ui/x.py", "from tfdeploy.agent import wire"),
    ("imports", "tfdeploy/tree/x.py", "import yaml"),
    ("imports", "tfdeploy/cli/x.py", "import tensorflow as tf"),
    ("imports", "tfdeploy/cli/x.py", "from tfdeploy.agent.serve import main"),
    ("imports", "tfdeploy/cli/x.py", "from tfdeploy.agent import serve"),
    ("imports", "tfdeploy/cli/x.py", "from tfdeploy.runtime import hooks"),
    ("imports", "tfdeploy/agent/x.py", "from tfdeploy.model.job import Job"),
    ("imports", "tfdeploy/agent/x.py", "from tfdeploy.errors import Refused"),
    ("imports", "tfdeploy/agent/x.py", "try:\n    import msgspec\nexcept ImportError:\n    pass"),
    ("imports", "tfdeploy/runtime/x.py", "import msgspec"),
    ("imports", "tfdeploy/config/x.py", "from tfdeploy.runtime.old_names import removed_names"),
    ("imports", "tfdeploy/planning/x.py", "from tfdeploy.runtime import hooks"),
    ("imports", "tfdeploy/errors.py", "import msgspec"),
    ("imports", "benchmarks/x.py", "import fabric"),
    ("imports", "tfdeploy/agent/x.py", "import imp"),
    ("imports", "tfdeploy/agent/x.py", "import tomllib"),
    (
        "private",
        "tfdeploy/agent/x.py",
        "try:\n    from _sha256 import sha256\nexcept ImportError:\n    from hashlib import sha256",
    ),
    (
        "private",
        "tfdeploy/agent/x.py",
        "try:\n    import _json\nexcept ImportError:\n    import json",
    ),
    ("private", "tfdeploy/agent/json_text.py", "import _json"),
    (
        "private",
        "tfdeploy/agent/json_text.py",
        "try:\n    import _json\nexcept ValueError:\n    import json",
    ),
    (
        "private",
        "tfdeploy/agent/json_text.py",
        "try:\n    import json\nexcept ImportError:\n    import _json",
    ),
    ("private", "tfdeploy/cli/x.py", "def f():\n    import posix"),
    ("private", "tfdeploy/cli/x.py", "json = __import__('json')"),
    ("names", "tfdeploy/config/utils.py", ""),
    ("names", "tfdeploy/helpers/x.py", ""),
    ("names", "tfdeploy/config/x.py", "class Manager: pass"),
    ("names", "tfdeploy/config/x.py", "class _HostInfo: pass"),
    ("print", "tfdeploy/config/x.py", "def f():\n    print('x')"),
    ("sleep", "tests/unit/test_x.py", "import time\ntime.sleep(1)"),
    ("sleep", "tests/unit/test_x.py", "from time import sleep\nsleep(1)"),
    ("sleep", "tests/unit/test_x.py", "import time\nwhile True:\n    time.sleep(1)"),
    ("notes", "tfdeploy/config/x.py", "# TO" + "DO: later"),
    ("notes", "tests/test_x.py", "x = 1  # FIX" + "ME"),
    ("length", "tfdeploy/config/x.py", "\n" * 501),
]


@pytest.mark.parametrize(("rule", "path", "source"), PLANTED)
def test_violation_is_found(rule, path, source):
    assert list(RULES[rule][0](source, path)), (rule, source)


ALLOWED = [
    (
        "rooms",
        "tfdeploy/agent/run/x.py",
        "from tfdeploy.agent import wire\nfrom tfdeploy.agent.run import folder",
    ),
    (
        "rooms",
        "tfdeploy/agent/serve/run/x.py",
        "from tfdeploy.agent.serve.run import status\nfrom tfdeploy.agent.serve.env import verbs",
    ),
    ("rooms", "tfdeploy/operations/setup.py", "from tfdeploy.operations.sync import sync"),
    (
        "imports",
        "tfdeploy/config/x.py",
        "import yaml\nfrom tfdeploy.agent import wire\nfrom tfdeploy.agent.wire import "
        "TASK_MARKERS",
    ),
    (
        "imports",
        "tfdeploy/transport/x.py",
        "import fabric\nfrom tfdeploy.agent.layout import agent_dir",
    ),
    ("imports", "tfdeploy/planning/x.py", "from tfdeploy.runtime.old_names import removed_names"),
    (
        "imports",
        "tfdeploy/runtime/x.py",
        "import numpy\nimport tensorflow\nfrom tfdeploy.runtime import hooks\nfrom . import task",
    ),
    (
        "imports",
        "tfdeploy/agent/x.py",
        "import os\nfrom tfdeploy.agent import wire\nfrom . import layout",
    ),
    ("imports", "tfdeploy/cli/x.py", "import rich\nfrom tfdeploy import __version__, config, lab"),
    (
        "imports",
        "tfdeploy/ui/x.py",
        "from tfdeploy.model.plan import Plan\nfrom tfdeploy.errors import Refused",
    ),
    (
        "private",
        "tfdeploy/agent/json_text.py",
        "from __future__ import annotations\nimport _thread\ntry:\n    import _json\nexcept "
        "ImportError:\n    import json",
    ),
    ("names", "tfdeploy/tree/datasets.py", "class DataListing: pass"),
    ("print", "tfdeploy/cli/x.py", "print('x')"),
    ("print", "tfdeploy/config/x.py", "text = 'print(1)'"),
    (
        "sleep",
        "tests/support/waiting.py",
        "import time\nwhile not reached():\n    time.sleep(0.05)",
    ),
    ("length", "tfdeploy/config/x.py", "\n" * 500),
]


@pytest.mark.parametrize(("rule", "path", "source"), ALLOWED)
def test_allowed_source_passes(rule, path, source):
    assert list(RULES[rule][0](source, path)) == []
