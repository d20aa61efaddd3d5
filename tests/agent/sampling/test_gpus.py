"""Test the samples of GPUs that nvidia-smi prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.agent.cluster import wait_until
from tfdeploy.agent.sampling.gpus import Gpu, GpuSampler, start_gpu_sampler

# Prints one round of values, and ends when the file `end` exists.
SMI = """#!/bin/sh
echo "1, 5, 2, 8"; echo "0, 87, 1, 8"
while [ ! -e "$0.end" ]; do sleep 0.05; done
"""
KNOWN = [Gpu(0, 87.0, 1 << 20, 8 << 20), Gpu(1, 5.0, 2 << 20, 8 << 20)]


def test_values_are_kept_until_nvidia_smi_ends(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    sampler = GpuSampler(str(program), 10.0)
    try:
        wait_until(lambda: sampler.sample() == KNOWN, what="nvidia-smi has printed a round")
        assert sampler.sample() == KNOWN
        program.with_name("nvidia-smi.end").touch()
        wait_until(lambda: not sampler.sample(), what="nvidia-smi has ended")
    finally:
        sampler.close()


def test_a_host_without_nvidia_smi_has_no_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert start_gpu_sampler(10.0) is None
