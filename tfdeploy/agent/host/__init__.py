"""Read and control this machine: its kernel, its disks, its processes and its programs."""


def boot_id() -> str:
    """Return the id of the kernel's current boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
