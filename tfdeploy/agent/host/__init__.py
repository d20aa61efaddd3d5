"""Read and control this machine: its kernel, its disks, its processes and its programs."""

import os


def boot_id() -> str:
    """Return the id of the kernel's current boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def user_name() -> str:
    """Return the name of the user that runs this process. Return the uid if the user has no
    name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
