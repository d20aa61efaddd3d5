"""What a test needs of the machine, asked as the isolated lab asks it: by trying (tfdeploy/lab/capabilities.py)."""

from __future__ import annotations

import os

import pytest

from support.waiting import in_ci
from tfdeploy.lab import capabilities

MAY_LACK = "TFDEPLOY_TEST_MAY_LACK"  # names with commas between, or "all": of a CI machine that is known not to have them


def can(name: str) -> bool:
    """True if this machine has it: for a test of which one part needs it."""
    return not capabilities.find_lacks(name, command="make test")


def need(*names: str) -> None:
    """Skips the test where this machine lacks one of `names`: "isolated lab", a program, a trial of tfdeploy/lab/trials.py.

    In CI that is a failure, but for what MAY_LACK names.
    """
    missing = [(name, lacks) for name in names if (lacks := capabilities.find_lacks(name, command="make test"))]
    if not missing:
        return
    lacks = list(dict.fromkeys(lack for _, each in missing for lack in each))
    reason = f"{capabilities.describe(lacks)}; to have it: {capabilities.remedies(lacks)}"
    expected = [name for name, _ in missing if not _may_lack(name)]
    if in_ci() and expected:
        pytest.fail(f"{reason}; or set {MAY_LACK}={','.join(expected)}", pytrace=False)
    pytest.skip(reason)


def _may_lack(name: str) -> bool:
    named = os.environ.get(MAY_LACK, "").split(",")
    return name in named or "all" in named
