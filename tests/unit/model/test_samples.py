"""Test how tfdeploy reads samples (measurements on a host) from an agent of another version."""

from __future__ import annotations

import pytest

from tfdeploy.model.answers.samples import GpuSample
from tfdeploy.model.typed import InvalidJsonValue, convert_untrusted


def test_gpu_may_have_more_values_from_newer_agent_and_fewer_from_older() -> None:
    assert convert_untrusted([0, 50.0, 1, 2, "new"], GpuSample) == GpuSample(0, 50.0, 1, 2)
    assert convert_untrusted([3], GpuSample) == GpuSample(3, None, None, None)


@pytest.mark.parametrize("value", [[], [-1], [0, 101.0], {"number": 0}])
def test_invalid_gpu_is_refused(value: object) -> None:
    with pytest.raises(InvalidJsonValue):
        convert_untrusted(value, GpuSample)
