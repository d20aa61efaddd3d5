"""Test which files of a host are event files of the run, and how their folders are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.needs import has_ability
from tfdeploy.agent import wire
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.sampling import event_folders
from tfdeploy.agent.sampling.event_folders import EventFolders

BEGAN = 1e9
HERE = os.uname().nodename


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    run_folder = RunPaths(str(tmp_path / "work" / "j" / "runs" / "r1" / "hosts" / "n1"))
    Path(run_folder.host_dir).mkdir(parents=True)
    Path(run_folder.cwd).mkdir()
    run_folder.write_part(part())
    os.utime(run_folder.file("part.json"), (BEGAN, BEGAN))
    return run_folder


def part(decides: str = "n1", keep: tuple[str, ...] = ()) -> wire.HostPart:
    peers = [wire.Peer(task="worker:0", role="worker", host=decides, deciding=True)]
    return wire.HostPart(
        run="r1",
        job="j",
        mode="async",
        host="n1",
        plan_digest="",
        release="",
        peers=peers,
        keep=list(keep),
    )


def write(
    folder: Path | str, host: str = HERE, born: int = 100, changed: float = BEGAN + 1
) -> Path:
    path = Path(folder, f"events.out.tfevents.{born}.{host}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (changed, changed))
    return path


def names(folders: EventFolders) -> dict[str, str]:
    """Return a dict. Each key is the path of an event file, relative to the working directory. The
    value is the name that the sampler gives to the folder of this file.
    """
    return {
        os.path.relpath(path, folders._paths.cwd): event_file.name
        for path, event_file in folders.find_files().items()
    }


def test_what_is_an_event_file(paths: RunPaths) -> None:
    for name in (
        "events.out.tfevents.7.h",
        "events.out.tfevents.8.h.123.0.v2",
        "events.out.tfevents.9.h.profile-empty",
    ):
        Path(paths.cwd, name).touch()
    for name in (
        "events.out.tfevents.x.h",
        "model.ckpt-1",
        "events.out.tfevents",
        "my.events.out.tfevents.7.h",
    ):
        Path(paths.cwd, name).touch()
    Path(paths.cwd, "events.out.tfevents.1.folder").mkdir()
    assert sorted(
        event_file.created_s for event_file in EventFolders(paths, part()).find_files().values()
    ) == [
        7,
        8,
        9,
    ]


@pytest.mark.parametrize(
    ("folders", "called"),
    [
        (["logs/train", "logs/validation"], ["train", "validation"]),
        (["a/train", "b/train"], ["train", "b/train"]),
        (["logs/20261121-101500/train", "logs/20261122-081500/train"], ["train", "train"]),
        (["logs/2026-11-21T10:15:00"], ["logs"]),
        (["20261121-101500", "."], ["events", "events"]),
    ],
)
def test_names(paths: RunPaths, folders: list[str], called: list[str]) -> None:
    one = EventFolders(paths, part())
    for folder in folders:
        write(Path(paths.cwd, folder))
        names_found = names(one)
    assert [
        names_found[os.path.normpath(f"{folder}/events.out.tfevents.100.{HERE}")]
        for folder in folders
    ] == called


def test_files_of_an_earlier_run_are_none(paths: RunPaths) -> None:
    old = write(Path(paths.cwd, "logs"), changed=BEGAN - 1)
    one = EventFolders(paths, part())
    assert names(one) == {}
    os.utime(old, (BEGAN + 5, BEGAN + 5))
    assert list(names(one).values()) == ["logs"]


def test_keep_folders_are_looked_into_where_they_are_linked(paths: RunPaths) -> None:
    kept = Path(paths.workdir, "j", "keep", "ckpt")
    write(kept / "eval")
    assert names(EventFolders(paths, part(keep=("ckpt",)))) == {}
    Path(paths.cwd, "ckpt").symlink_to(kept)
    assert list(names(EventFolders(paths, part(keep=("ckpt",)))).values()) == ["eval"]


def test_a_workdir_may_be_reached_by_a_link(paths: RunPaths, tmp_path: Path) -> None:
    write(Path(paths.cwd, "logs"))
    (tmp_path / "linked").symlink_to("work")
    linked = RunPaths(paths.host_dir.replace("/work/", "/linked/"))
    assert [
        event_file.name for event_file in EventFolders(linked, part()).find_files().values()
    ] == ["logs"]


def test_links_pipes_and_files_of_others_are_none(paths: RunPaths, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside")
    Path(paths.cwd, "linked").symlink_to(outside.parent)
    Path(paths.cwd, "events.out.tfevents.1.a").symlink_to(outside)
    os.mkfifo(Path(paths.cwd, "events.out.tfevents.2.a"))
    assert EventFolders(paths, part()).find_files() == {}
    if has_ability("other accounts"):
        os.chown(write(paths.cwd), 12345, -1)
        assert EventFolders(paths, part()).find_files() == {}


@pytest.mark.parametrize(("folder", "steps"), [("logs", 2), ("logs/train", 4)])
def test_a_folder_that_becomes_a_link_amid_a_walk_is_not_followed(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, folder: str, steps: int
) -> None:
    monkeypatch.setattr(event_folders, "CALL_ENTRIES", steps)
    write(Path(paths.cwd, folder))
    write(Path(paths.cwd).parent / "outside")
    write(Path(paths.cwd).parent / "outside" / "train")
    one = EventFolders(paths, part())
    # After this call, the folder is in the list of known folders.
    one.find_files()
    Path(paths.cwd, "logs").rename(Path(paths.cwd, "..", "away"))
    Path(paths.cwd, "logs").symlink_to("../outside")
    for _ in range(10):
        assert one.find_files() == {}


def test_on_hosts_that_share_a_disk_each_file_counts_once(paths: RunPaths) -> None:
    """A host reads an event file that another machine wrote only if a task of this host decides the
    success of the run. If the host itself writes to the folder, it reads only its own file.
    """
    write(paths.cwd, host="elsewhere")
    assert len(EventFolders(paths, part()).find_files()) == 1
    assert EventFolders(paths, part(decides="n2")).find_files() == {}
    write(paths.cwd)
    assert [
        event_file.is_own for event_file in EventFolders(paths, part()).find_files().values()
    ] == [True]
    assert [
        event_file.is_own
        for event_file in EventFolders(paths, part(decides="n2")).find_files().values()
    ] == [True]


@pytest.mark.parametrize(
    ("rest", "own"),
    [
        ("", True),
        (".1234.0.v2", True),
        (".1234.0", True),
        (".eval", True),
        ("0", False),
        ("0.1234.0.v2", False),
    ],
)
def test_which_machine_wrote_a_file(paths: RunPaths, rest: str, own: bool) -> None:
    """The name of an event file contains the name of the machine that wrote the file. The text that
    follows the machine's name differs between TensorFlow 1, TensorFlow 2, PyTorch, and writers that
    add a suffix.
    """
    write(paths.cwd, host=HERE + rest)
    assert [
        event_file.is_own for event_file in EventFolders(paths, part()).find_files().values()
    ] == [own]


def test_a_large_tree_is_walked_over_several_looks(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_folders, "CALL_ENTRIES", 50)
    for number in range(60):
        Path(paths.cwd, f"empty{number}").mkdir()
    write(Path(paths.cwd, "z", "logs"))
    one = EventFolders(paths, part())
    assert one.find_files() == {}
    looks = [len(one.find_files()) for _ in range(20)]
    assert looks[3:] == [1] * 17


def test_of_more_files_than_are_noted_those_that_changed_last_stay(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_folders, "MOST_FILES", 3)
    for number in range(6):
        write(Path(paths.cwd, f"l{number}"), changed=BEGAN + 1 + number)
    one = EventFolders(paths, part())
    one.find_files()
    assert len(one.find_files()) <= 3 and "l5" in {
        event_file.name for event_file in one.find_files().values()
    }


def test_a_file_that_is_gone_is_forgotten(paths: RunPaths) -> None:
    path = write(paths.cwd)
    one = EventFolders(paths, part())
    assert one.find_files()
    path.unlink()
    assert not one.find_files()


def test_no_working_directory_at_all(paths: RunPaths) -> None:
    os.rmdir(paths.cwd)
    assert EventFolders(paths, part()).find_files() == {}
