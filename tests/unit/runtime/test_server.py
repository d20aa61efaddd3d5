"""Test a TensorFlow server that tfdeploy starts: which job of the cluster (such as ps or worker) it
serves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[3] / "tfdeploy" / "runtime" / "site"


@pytest.fixture
def planned(monkeypatch):
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.delitem(sys.modules, "tfdeploy_server", raising=False)
    from tfdeploy_server import parse_tf_config

    return parse_tf_config


def tf_config(role, index):
    return json.dumps(
        {
            "cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]},
            "task": {"type": role, "index": index},
        }
    )


def test_job_of_workers_has_name_used_by_client(planned):
    assert planned(tf_config("worker", 1)) == (
        {"ps": ["a:1"], "worker": ["b:1", "c:1"]},
        "worker",
        1,
    )
    assert planned(tf_config("worker", 1), "local") == (
        {"ps": ["a:1"], "local": ["b:1", "c:1"]},
        "local",
        1,
    )
    assert planned(tf_config("ps", 0), "local") == (
        {"ps": ["a:1"], "local": ["b:1", "c:1"]},
        "ps",
        0,
    )
    with pytest.raises(ValueError, match="names no task"):
        planned(tf_config("worker", 2), "local")
