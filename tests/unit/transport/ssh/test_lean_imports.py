"""Test that tfdeploy can use SSH without importing certain modules that its SSH library imports but
seldom needs.

Code that needs such a module still gets it.
"""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import tfdeploy.transport.fleet
import tfdeploy.transport.ssh.trust
assert not {"asyncio", "ssl", "unittest.mock"} & set(sys.modules), sorted(sys.modules)
from unittest.mock import Mock
assert Mock(return_value=3)() == 3
import fabric, invoke
assert invoke.run("echo here", hide=True).stdout == "here\\n"
"""


def test_ssh_starts_without_mock_and_mock_can_be_imported() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_imported_mock_stays() -> None:
    code = (
        "from unittest import mock\nimport tfdeploy.transport.fleet, sys\nassert "
        "sys.modules['unittest.mock'] is mock"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ssh_starts_without_metadata_and_metadata_can_be_imported() -> None:
    code = """
import sys
import tfdeploy.transport.fleet
import paramiko
assert not {"email.message", "csv"} & set(sys.modules), sorted(sys.modules)
import importlib.metadata
assert paramiko.__version__ == importlib.metadata.version("paramiko")
from importlib.metadata import distribution
assert distribution("paramiko").version == paramiko.__version__
assert sys.modules["importlib.metadata"].__file__
import importlib.metadata._adapters
"""
    subprocess.run([sys.executable, "-c", code], check=True)
