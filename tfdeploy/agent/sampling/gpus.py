"""Measure how busy the GPUs of this host are. One nvidia-smi process runs all the time and prints
the values.

nvidia-smi numbers the GPUs in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID. On a host without
nvidia-smi, tasks get no GPUs, because tfdeploy finds the GPUs of a host by nvidia-smi too.
"""

from __future__ import annotations

import os
import subprocess

from tfdeploy.agent.annotations import Dict, List, Optional
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.installed import find_program
from tfdeploy.agent.record import NamedTuple

MOST_GPUS = 64
_MOST_BYTES = 1 << 16  # one call reads at most this many bytes of nvidia-smi's output
_QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"


class Gpu(NamedTuple):
    """One GPU. A value is None if the GPU does not report it."""

    number: int  # the number by which CUDA_VISIBLE_DEVICES names the GPU
    busy: Optional[float]  # for how many percent of the last interval the GPU was busy
    memory: Optional[int]  # bytes of GPU memory in use
    memory_total: Optional[int]


class GpuSampler:
    """Runs nvidia-smi and reads samples of the GPUs from its output. The constructor raises OSError
    if nvidia-smi cannot be started."""

    def __init__(self, program: str, every_s: float) -> None:
        parent = os.getpid()
        self._process = subprocess.Popen(
            [program, _QUERY, "--format=csv,noheader,nounits", "-l", str(max(1, round(every_s)))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: processes.die_with_parent(parent),
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._held = b""
        self._newest: Dict[int, Gpu] = {}  # number of a GPU -> its newest values

    def sample(self) -> List[Gpu]:
        """Return the newest values of each GPU, or [] if nvidia-smi has ended."""
        try:
            new = os.read(self._output, _MOST_BYTES)
            if not new:
                self._newest.clear()
        except BlockingIOError:
            new = b""
        *lines, unfinished = (self._held + new).split(b"\n")
        self._held = unfinished[-200:]
        self._newest.update((gpu.number, gpu) for gpu in map(parse_gpu, lines) if gpu is not None)
        return [self._newest[number] for number in sorted(self._newest)[:MOST_GPUS]]

    def close(self) -> None:
        with self._process:
            self._process.kill()


def parse_gpu(line: bytes) -> Optional[Gpu]:
    """Parse a line such as `0, 87, 10240, 81559` (number, percent, MiB used, MiB in total). `[N/A]`
    stands for a value that the GPU does not report. Return None if the line has another form."""
    columns = [column.strip() for column in line.split(b",")]
    if len(columns) != 4 or not columns[0].isdigit():
        return None
    busy, used, total = (float(column) if column.isdigit() else None for column in columns[1:])
    return Gpu(int(columns[0]), busy, _mebibytes_to_bytes(used), _mebibytes_to_bytes(total))


def _mebibytes_to_bytes(mebibytes: Optional[float]) -> Optional[int]:
    return None if mebibytes is None else int(mebibytes) << 20


def start_gpu_sampler(every_s: float) -> Optional[GpuSampler]:
    """Return an object that reads samples of GPUs. Return None if this host has no nvidia-smi or it
    cannot be started."""
    program = find_program("nvidia-smi")
    try:
        return GpuSampler(program, every_s) if program is not None else None
    except OSError:
        return None
