"""Test how tfdeploy finds out whether other users can change a file.

The checks cover the file itself, and each folder and symbolic link on the path to the file.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tfdeploy.machine.ownership import (
    find_folder_tamper_risk,
    find_tamper_risk,
    is_writable_by_others,
)

STRANGER = 64001


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    path = folder / "my hosts.yaml"
    path.write_text("hosts: {n1: {}}\n")
    path.chmod(0o644)
    return path


def _share(path: Path) -> None:
    os.chown(path, -1, STRANGER)
    path.chmod(path.stat().st_mode | 0o020)


def _link_of_a_stranger(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")
    os.lchown(path, STRANGER, STRANGER)


def _list_a_stranger(path: Path) -> None:
    """Give user 64001 access to the file by its access list, as `setfacl -m u:64001:rw` does."""
    entries = ((1, 6, -1), (2, 6, STRANGER), (4, 6, -1), (16, 6, -1), (32, 4, -1))
    try:
        os.setxattr(
            path,
            "system.posix_acl_access",
            b"\2\0\0\0" + b"".join(struct.pack("<HHi", *entry) for entry in entries),
        )
    except OSError as error:
        pytest.skip(f"no access lists in {path.parent}: {error.strerror}")


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a stranger's file": (
        lambda path: os.chown(path, STRANGER, -1),
        f"belongs to user {STRANGER}",
        "sudo chown",
    ),
    "a file for everybody": (lambda path: path.chmod(0o666), "by everybody", "chmod o-w"),
    "a file for a group": (_share, f"by the group {STRANGER}", "chmod g-w"),
    "a link of a stranger": (_link_of_a_stranger, f"belongs to user {STRANGER}", "sudo chown -h"),
    "a stranger's folder": (
        lambda path: os.chown(path.parent, STRANGER, -1),
        f"belongs to user {STRANGER}",
        "sudo chown",
    ),
    "a folder for everybody": (lambda path: path.parent.chmod(0o777), "by everybody", "chmod o-w"),
    "a folder for a group": (
        lambda path: _share(path.parent),
        f"by the group {STRANGER}",
        "chmod g-w",
    ),
}


@pytest.mark.needs("other accounts")
@pytest.mark.parametrize("change", CHANGES)
def test_path_writable_by_other_user_is_named_with_command(file: Path, change: str) -> None:
    assert find_tamper_risk(file) is None
    do, message, fix = CHANGES[change]
    do(file)
    exposure = find_tamper_risk(file)
    assert exposure is not None and message in exposure.what and exposure.fix.startswith(fix)
    subprocess.run(["sh", "-c", exposure.fix.removeprefix("sudo ")], check=True)
    assert find_tamper_risk(file) is None


@pytest.mark.needs("other accounts")
@pytest.mark.parametrize("mode", [0o1777, 0o3775])
def test_file_in_sticky_folder_of_root_is_safe_but_folder_is_not_private(
    file: Path, mode: int
) -> None:
    os.chown(file.parent, -1, STRANGER)
    file.parent.chmod(mode)
    assert find_tamper_risk(file) is None and is_writable_by_others(file.parent)
    exposure = find_folder_tamper_risk(file.parent)
    assert exposure is not None and not exposure.is_foreign


@pytest.mark.needs("other accounts")
def test_subfolder_is_checked(tmp_path: Path) -> None:
    (tmp_path / "state/runs").mkdir(parents=True)
    assert find_folder_tamper_risk(tmp_path / "state") is None
    os.chown(tmp_path / "state/runs", STRANGER, -1)
    exposure = find_folder_tamper_risk(tmp_path / "state")
    assert exposure is not None and exposure.is_foreign and exposure.path.endswith("/runs")


@pytest.mark.needs("other accounts")
def test_private_group_of_trusted_user_is_trusted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file belongs to a user and to the user's own group, such as root:root.
    file.chmod(0o664)
    assert find_tamper_risk(file) is None
    # In a container, it is possible that neither the uid nor the gid has a name.
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    os.chown(file, STRANGER, STRANGER)
    assert find_tamper_risk(file) is None
    os.chown(file, STRANGER, STRANGER + 1)
    assert find_tamper_risk(file) is not None


@pytest.mark.needs("other accounts")
def test_access_list_is_checked_in_private_group(file: Path) -> None:
    file.chmod(0o664)
    _list_a_stranger(file)
    exposure = find_tamper_risk(file)
    assert exposure is not None and "chmod g-w" in exposure.fix


@pytest.mark.needs("other accounts")
def test_sudo_trusts_files_of_caller_only_for_caller(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(file, STRANGER, -1)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert find_tamper_risk(file) is None
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    assert find_tamper_risk(file) is not None


def test_missing_file_is_no_exposure(tmp_path: Path) -> None:
    assert find_tamper_risk(tmp_path / "none/at/all") is None
    (tmp_path / "loop").symlink_to("loop")
    assert find_tamper_risk(tmp_path / "loop") is None
