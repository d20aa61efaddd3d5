"""Test programs with syntax errors.

If the hosts have the same version of Python as this machine, such a program is refused. Otherwise
the plan only has a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.source.syntax import HERE

BROKEN = "import os\ndef broken(:\n"


@pytest.fixture
def plan(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> Callable[..., Plan]:
    def make(sources: dict[str, str], python: str, **keys: Any) -> Plan:
        hosts = inventory(ps="n1", worker="n2")
        facts = {host.name: facts_of(host, python_version=python) for host in hosts.hosts}
        python_facts: Any = {
            "release": "r",
            "run": "r-1",
            "now": 1.0,
            "operator": "ml@desk",
            "options": Options(),
        }
        return make_plan(hosts, replace(job, **keys), facts, sources=sources, **python_facts)

    return make


def test_syntax_error_is_refused_if_hosts_have_same_python(plan: Callable[..., Plan]) -> None:
    with pytest.raises(
        Refused, match=rf"^train.py:2 does not parse: .* \(Python {HERE}, as on the hosts\)$"
    ) as refused:
        plan({"train.py": BROKEN}, f"{HERE}.7")
    assert refused.value.where == "train.py:2"


@pytest.mark.parametrize(
    ("sources", "python", "keys"),
    [
        ({"train.py": BROKEN}, "3.99.1", {}),
        ({"train.py": BROKEN}, f"{HERE}.7", {"command": ("/opt/python3.99", "train.py")}),
        (
            {"train.py": "try:\n    import old\nexcept SyntaxError:\n    pass\n", "old.py": BROKEN},
            f"{HERE}.7",
            {},
        ),
        ({"train.py": f"# -*- coding: latin-1 -*-\n\ufffd = 1\n{BROKEN}"}, f"{HERE}.7", {}),
    ],
)
def test_syntax_that_other_python_may_accept_gives_note(
    plan: Callable[..., Plan], sources: dict[str, str], python: str, keys: dict[str, Any]
) -> None:
    (text,) = [note for note in plan(sources, python, **keys).notes if "does not parse" in note]
    assert f"does not parse with Python {HERE} on this machine: " in text


def test_python_2_is_recognised(plan: Callable[..., Plan]) -> None:
    with pytest.raises(Refused, match="is Python 2, and the hosts run Python 3"):
        plan({"train.py": "print 'x'\n"}, f"{HERE}.7")
