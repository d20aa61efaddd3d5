"""Measure how busy the GPUs of this host are. NVIDIA's library (NVML) is used if it is installed,
otherwise one nvidia-smi process that keeps running.

The library is called through ctypes: https://docs.nvidia.com/deploy/nvml-api/. Library and program
number the GPUs in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

from __future__ import annotations

import ctypes
import os
import subprocess

from tfdeploy.agent.annotations import List, Optional, Union
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.installed import find_program
from tfdeploy.agent.record import NamedTuple

MOST_GPUS = 64
_MOST_BYTES = 1 << 16  # limits how many bytes of nvidia-smi's output one call reads
_SUCCESS = 0
_QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"


class Gpu(NamedTuple):
    """One GPU. A value is None if the GPU does not report it."""

    number: int  # number of the GPU, as in CUDA_VISIBLE_DEVICES
    busy: Optional[float]  # percent of the time in which the GPU was busy
    memory: Optional[int]  # bytes of GPU memory in use
    memory_total: Optional[int]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Nvml:
    """Reads samples of GPUs from the library NVML. The constructor raises OSError if the library or
    a driver is missing."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        try:
            if self._library.nvmlInit_v2() != _SUCCESS:
                raise OSError("NVML does not start")
        except AttributeError as error:  # the loaded library is not NVML
            raise OSError(str(error)) from error

    def sample(self) -> List[Gpu]:
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
            return []
        return [self._gpu(index) for index in range(min(count.value, MOST_GPUS))]

    def _gpu(self, index: int) -> Gpu:
        handle, use, memory = ctypes.c_void_p(), _Utilization(), _Memory()
        if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != _SUCCESS:
            return Gpu(index, None, None, None)
        busy = self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)) == _SUCCESS
        known = self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == _SUCCESS
        return Gpu(
            index,
            float(use.gpu) if busy else None,
            memory.used if known else None,
            memory.total if known else None,
        )

    def close(self) -> None:
        self._library.nvmlShutdown()


class NvidiaSmi:
    """Reads samples of GPUs from the program nvidia-smi. The constructor raises OSError if the
    program cannot be started."""

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

    def sample(self) -> List[Gpu]:
        """Return each GPU with the newest values that nvidia-smi has printed since the last call.
        After nvidia-smi has ended, return []."""
        try:
            new = os.read(self._output, _MOST_BYTES)
        except BlockingIOError:
            new = b""
        *lines, unfinished = (self._held + new).split(b"\n")
        self._held = unfinished[-200:]
        gpus = {gpu.number: gpu for gpu in map(parse_gpu, lines) if gpu is not None}
        return [gpus[index] for index in sorted(gpus)[:MOST_GPUS]]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


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


def start_gpu_sampler(every_s: float) -> Optional[Union[Nvml, NvidiaSmi]]:
    """Return an object that reads samples of GPUs. Return None if neither NVML nor nvidia-smi works
    on this host."""
    try:
        return Nvml()
    except OSError:
        pass
    program = find_program("nvidia-smi")
    try:
        return NvidiaSmi(program, every_s) if program is not None else None
    except OSError:
        return None
