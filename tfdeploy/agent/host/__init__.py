"""This machine: what its kernel, its disks and its programs say."""


def boot_id() -> str:
    """Of this boot of its kernel."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
