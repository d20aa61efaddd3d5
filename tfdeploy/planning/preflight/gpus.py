"""Checks that the GPUs in the inventory exist and are free, and that the driver fits TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.errors import Refused
from tfdeploy.planning.cluster import gpus as placed
from tfdeploy.planning.preflight.case import HostCase, Problem
from tfdeploy.text.units import version_numbers

# One line for each CUDA version: (the first TensorFlow version that was built for it, the oldest
# NVIDIA driver that can run it). The source is NVIDIA's table of CUDA minor version compatibility.
DRIVERS = (
    ((2, 15), "525.60.13"),  # CUDA 12
    ((2, 5), "450.80.02"),  # CUDA 11.2
    ((2, 4), "450.36.06"),  # CUDA 11.0
    ((2, 1), "418.39"),  # CUDA 10.1
    ((1, 13), "410.48"),  # CUDA 10.0
)


def gpus(case: HostCase) -> Iterator[Problem]:
    """Yield problems of the GPUs: they are missing or in use, or nvidia-smi reports an error."""
    if case.host.gpus == "none":
        return
    try:
        placed.usable_gpus(case.host, case.facts)
    except Refused as error:
        yield Problem(error.what, error.next or "", "error")
        return
    smi, devices = case.command("nvidia-smi"), case.preflight.nvidia_devices
    if case.facts.gpu_error:
        yield Problem(case.facts.gpu_error, f"{smi}; if the driver was updated, reboot the host")
    elif devices and not case.facts.gpus:
        yield Problem(
            f"{devices} GPUs of NVIDIA are on the bus, but nvidia-smi is missing",
            f"install NVIDIA's driver on {case.host.name}, or write `gpus: none`",
        )
    elif busy := placed.busy_gpus_text(case.host, case.facts):
        yield Problem(f"a launch leaves out GPUs that are in use: {busy}", smi)


def driver(case: HostCase) -> Iterator[Problem]:
    """Yield problems of TensorFlow or the driver that prevent TensorFlow from using the GPUs."""
    version = case.facts.tensorflow
    if case.host.gpus == "none" or not case.facts.gpus or not version:
        return
    if case.facts.cpu_only:
        yield Problem(
            f"TensorFlow {version} was built without GPU support, but this host has GPUs",
            case.pip_install(f"tensorflow[and-cuda]=={version}"),
        )
    drivers = (driver for since, driver in DRIVERS if version_numbers(version) >= since)
    has, needed = case.preflight.driver, next(drivers, None)
    if has and version_numbers(has) < version_numbers(needed):
        yield Problem(
            f"NVIDIA's driver {has} is older than {needed}, which TensorFlow {version} needs: "
            "TensorFlow would use the CPU",
            f"install NVIDIA's driver {needed} or newer on {case.host.name}, then reboot",
        )
