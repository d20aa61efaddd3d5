"""List this machine's files that must not be sent to hosts, such as secrets and ssh's private keys.

The job, the inventory and ssh's configuration name these files. All code that sends files, or
searches hosts for secret files, uses this list. To make the list, tfdeploy reads ssh's
configuration itself and does not start ssh.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfdeploy.model.answers.clean import SecretPathsByJob
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.target import GLOBAL_KNOWN_HOSTS, USER_KNOWN_HOSTS
from tfdeploy.tree.key_blocks import SEARCHED_BYTES, private_key_line
from tfdeploy.tree.withheld_files import WithheldFile, WithheldFiles

DEFAULT_KEYS = "~/.ssh/id_*"
_KEY_OF_INVENTORY = WithheldFile("a private key of the inventory")
_KEY_OF_SSH = WithheldFile("a private key of ssh")
_KNOWN_HOSTS = WithheldFile("a known_hosts file", is_secret=False)


def list_withheld_files(job: Job, hosts: Iterable[Host]) -> WithheldFiles:
    """Return the files that must not be sent.

    `hosts` must be all hosts of the inventory, not only those of the job. The key files with which
    this machine logs in to them are withheld, because no host may get the key to another host.
    """
    hosts, withheld = tuple(hosts), dict[str, WithheldFile]()
    for name, source in job.secret_sources.items():
        if source.file is not None:
            withheld.setdefault(source.file, WithheldFile(f"the secret {name}"))
    keys = {host.identity_file for host in hosts if host.identity_file}
    for file, paths in (
        (_KEY_OF_INVENTORY, (path for path in keys if not path.endswith(".pub"))),
        (_KEY_OF_SSH, _ssh_private_keys()),
        (_KNOWN_HOSTS, {host.known_hosts for host in hosts if host.known_hosts}),
        (_KNOWN_HOSTS, _ssh_known_hosts_files()),
    ):
        for path in paths:
            withheld.setdefault(os.path.expanduser(path), file)
    return WithheldFiles.from_paths(withheld)


def possibly_sent_secret_paths(job: Job, hosts: Iterable[Host]) -> SecretPathsByJob:
    """Return the paths, on hosts, of secret files that an older version of tfdeploy may have sent.

    This version does not send such files. The result is {} if there are none.
    """
    withheld_files = list_withheld_files(job, hosts)
    code = os.path.realpath(job.code)
    in_code = {
        path for path, file in withheld_files.files_below(code).items() if file.is_secret
    } | set(_secret_hard_links(code, withheld_files))
    in_data = set()
    for name, source in job.data.items():
        if source.from_host is None:
            top = os.path.realpath(source.path)
            top = top if os.path.isdir(top) else os.path.dirname(top)
            in_data |= {
                f"{name}/{path}"
                for path, file in withheld_files.files_below(top).items()
                if file.is_secret
            }
    paths = {
        "code": sorted(filter(_is_short_and_printable, in_code)),
        "data": sorted(filter(_is_short_and_printable, in_data)),
    }
    return {job.name: paths} if any(paths.values()) else {}


def _secret_hard_links(code: str, withheld_files: WithheldFiles) -> Iterator[str]:
    """Yield the paths in the code folder that are hard links to secret files."""
    find = withheld_files.make_finder(code)
    for folder, folders, names in os.walk(code) if withheld_files.has_hard_links else ():
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), code)
            try:
                file = find(path, os.lstat(os.path.join(folder, name)))
            except OSError:
                continue
            if file is not None and file.is_secret:
                yield path


def _is_short_and_printable(path: str) -> bool:
    """Return whether a host may name the path in an answer: the path is short and printable."""
    return path.isprintable() and len(path) < 1000


def _ssh_private_keys() -> Iterator[str]:
    named = [
        *glob.glob(os.path.expanduser(DEFAULT_KEYS)),
        *ssh_config.list_files_in_config("identityfile"),
    ]
    return (path for path in named if not path.endswith(".pub") and _contains_private_key(path))


def _ssh_known_hosts_files() -> Iterator[str]:
    yield from (*USER_KNOWN_HOSTS, *GLOBAL_KNOWN_HOSTS)
    for keyword in ("userknownhostsfile", "globalknownhostsfile"):
        yield from ssh_config.list_files_in_config(keyword)


def _contains_private_key(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return private_key_line(file.read(SEARCHED_BYTES)) > 0
    except OSError:
        return False
