"""Test how one host sends the files of its `keep` folders (folders that outlive a run) to another
host, also while the run ends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.agent.cluster import NewCluster
from tfdeploy.agent import layout, wire
from tfdeploy.agent.broadcast import keep_transfer
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState


def test_what_comes_after_the_end_of_the_run_is_not_put_in_place(hosts: NewCluster) -> None:
    """Files that arrive after the end of the run are not installed. The run's minder (the process
    that looks after the run on a host) may outlive the run to inform other hosts, and by then the
    next run of the job may write to the job's `keep` folder.
    """
    cluster = hosts("n1", "n2")
    cluster.launch(
        "r1",
        {"worker:0": ("n1", ["true"]), "worker:1": ("n2", ["true"])},
        keep=["ckpt"],
        supply_from="n1",
    )
    cluster.wait_ended("r1")
    keep = {
        name: Path(layout.keep_dir(host.context.workdir, cluster.job, "ckpt"))
        for name, host in cluster.hosts.items()
    }
    (keep["n1"] / "checkpoint").write_text("of the run that is over")
    (keep["n2"] / "checkpoint").write_text("of the next run")
    asked, answer = threading.Event(), threading.Event()
    meshes, chief = {}, cluster.hosts["n1"].paths("r1")

    def answer_late(host: str, *question: Any) -> None:
        asked.set()
        assert answer.wait(120)
        keep_transfer.send_keep_folders(chief, chief.part(), *question)

    for name, host in cluster.hosts.items():
        part = wire.from_wire(wire.HostPart, wire.to_wire(host.paths("r1").part()))
        meshes[name] = Mesh(
            part,
            cluster.certs[name],
            sockets.bind_exclusively(host.mesh_port, 20.0),
            KnownRunState(),
            lambda: None,
            answer_late,
            None,
        )
    paths = cluster.hosts["n2"].paths("r1")
    supplier = keep_transfer.KeepFetch(paths, paths.part(), meshes["n2"])
    try:
        assert not supplier.has_arrived_else_fetch(2) and asked.wait(120)
        supplier.give_up()
        answer.set()
        cluster.wait_until(lambda: not supplier._fetching)
        assert (keep["n2"] / "checkpoint").read_text() == "of the next run"
    finally:
        answer.set()
        for one in meshes.values():
            one.close()


def carried(
    path: Path, file: keep_transfer.File, folder: Path, change: Callable[[bytes], bytes] = bytes
) -> bytes:
    """Rename the file `path` to the name in `file`, and send it through a socket pair. Return the
    bytes that arrive.

    `change` modifies the bytes on the way.
    """
    ours, theirs = socket.socketpair()
    (path.parent / file[0]).parent.mkdir(exist_ok=True)
    path.rename(path.parent / file[0])
    with ours, theirs:

        def give() -> None:
            there, back = socket.socketpair()
            with there, back, back.makefile("rb") as arriving:
                keep_transfer._send_files(there, str(path.parent), [file])  # type: ignore[arg-type]
                there.shutdown(socket.SHUT_WR)
                ours.sendall(change(arriving.read()))
            ours.shutdown(socket.SHUT_WR)

        giving = threading.Thread(daemon=True, target=give)
        giving.start()
        try:
            for piece, content, target in keep_transfer._receive_pieces(
                theirs, str(folder), [file]
            ):  # type: ignore[arg-type]
                target.write(piece, content)
        finally:
            giving.join()
    return (folder / file[0]).read_bytes()


@pytest.mark.parametrize("content", [b"x", bytes(range(256)) * 300])
def test_a_file_comes_as_it_was_with_its_time(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    assert (
        carried(tmp_path / "model", ("ckpt/model", len(content), 10**18), tmp_path / "new")
        == content
    )
    assert (tmp_path / "new" / "ckpt" / "model").stat().st_mtime_ns == 10**18


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1] + b"y", "wrong content"),
        (lambda data: data[:-1], "ended"),
        (lambda data: b"", "ended"),
    ],
)
def test_what_comes_otherwise_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    (tmp_path / "model").write_bytes(b"x" * 1000)
    with pytest.raises((ValueError, EOFError), match=said):
        carried(tmp_path / "model", ("ckpt/model", 1000, 10**18), tmp_path / "new", change)


def test_what_was_cut_short_since_it_was_listed_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x" * 10)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="has become shorter"):
        keep_transfer._send_files(ours, str(tmp_path), [("model", 11, 0)])  # type: ignore[arg-type]


def test_a_file_that_the_chief_cannot_read_does_not_delay_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(layout.keep_dir(str(tmp_path), "job", "ckpt"))
    folder.mkdir(parents=True)
    for name in ("model", "secret"):
        (folder / name).write_text("x")
    # Root may read every file, so the answer of the system is simulated.
    monkeypatch.setattr(keep_transfer.os, "access", lambda path, _: not path.endswith("/secret"))
    paths: Any = SimpleNamespace(workdir=str(tmp_path), job="job")
    part: Any = SimpleNamespace(keep=["ckpt"])
    files, links = keep_transfer._list_files(paths, part)
    assert [path for path, _, _ in files] == ["ckpt/model"] and links == []
