"""Test series of random faults in random order (walks).

`make test` makes two walks, and `make soak` makes more, for TFDEPLOY_SOAK_MINUTES minutes. Each
walk prints its seed. If TFDEPLOY_WALK_SEED is set to a seed, that walk is repeated.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from support.faults.walks import Walk
from support.lab.commandline import Tfdeploy
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
WALKS, STEPS = 2, 7
SEED = os.environ.get("TFDEPLOY_WALK_SEED")
MINUTES = float(os.environ.get("TFDEPLOY_SOAK_MINUTES", "0"))


@pytest.fixture(scope="module")
def walked(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", 4)


def test_whatever_happens_the_run_ends_right(
    walked: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    until = time.monotonic() + 60 * MINUTES
    walks = 0
    while walks < (1 if SEED else WALKS) or time.monotonic() < until:
        seed = int(SEED) if SEED else random.randrange(1_000_000)
        walk = Walk(tfdeploy(walked), tfdeploy(walked), seed)
        try:
            walk.begin()
            for _ in range(STEPS):
                walk.step()
            walk.settle()
        except Exception:
            print("\n".join(walk.said), walk.as_it_stands(), sep="\n")
            raise
        walks += 1
        print("; ".join(walk.said), flush=True)
    print(f"{walks} walks")
