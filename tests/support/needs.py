"""Skip a test if the machine lacks what the test needs.

Trials in tfdeploy/lab/trials.py and in trials.py of this folder find out what the machine lacks.
"""

from __future__ import annotations

import os

import pytest

from support import trials
from support.waiting import in_ci
from tfdeploy.lab import capabilities
from tfdeploy.lab.capabilities import MissingCapability
from tfdeploy.lab.sshd import find_program

# A CI machine may lack the abilities that this environment variable lists, separated by commas. If
# the value is "all", a CI machine may lack every ability.
MAY_LACK = "TFDEPLOY_TEST_MAY_LACK"
# {program that only tests need: its Debian package}. In CI, scripts/setup installs them.
TEST_PACKAGES = {"fish": "fish", "groff": "groff-base", "zsh": "zsh"}


def has_ability(name: str) -> bool:
    """Return True if this machine has the ability `name`. Use this, and not `require`, if only a
    part of a test needs the ability.
    """
    return not _find_lacks(name)


def require(*names: str) -> None:
    """Skip the test if this machine lacks one of the abilities `names`. In CI, the test fails
    instead, unless the variable MAY_LACK lists the missing ability.

    An ability is "isolated lab", the name of a program, or the name of a trial.
    """
    lacks_by_name = {name: _find_lacks(name) for name in names}
    missing = [name for name, lacks in lacks_by_name.items() if lacks]
    if not missing:
        return
    lacks = list(dict.fromkeys(lack for name in missing for lack in lacks_by_name[name]))
    reason = (
        f"{capabilities.describe_missing(lacks)}; to have it: {capabilities.join_remedies(lacks)}"
    )
    unexpected = [name for name in missing if not _may_lack(name)]
    if in_ci() and unexpected:
        pytest.fail(f"{reason}; or set {MAY_LACK}={','.join(unexpected)}", pytrace=False)
    pytest.skip(reason)


def _may_lack(name: str) -> bool:
    allowed = os.environ.get(MAY_LACK, "").split(",")
    return name in allowed or "all" in allowed


def _find_lacks(name: str) -> list[MissingCapability]:
    if name in TEST_PACKAGES:
        remedy = f"apt-get install {TEST_PACKAGES[name]}"
        lack = MissingCapability(name, "not installed", remedy)
        return [] if find_program(name) else [lack]
    if name not in trials.TRIALS:
        return capabilities.find_missing_capabilities(name, command="make test")
    lack = trials.find_lack(name)
    return [] if lack is None else [lack]
