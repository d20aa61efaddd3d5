"""Provide a mesh (connections between the hosts of a run) of three hosts, and certificates of a
fourth host that does not belong to the run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.agent.cluster import NewCluster
from support.agent.meshes import NAMES, Meshes


@pytest.fixture
def three(hosts: NewCluster) -> Iterator[Meshes]:
    made = Meshes(hosts(*NAMES, "stranger"))
    yield made
    made.close()
