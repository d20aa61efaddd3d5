"""Test the members of a broadcast (hosts that pass data on to each other) on loopback.

The cases are chains of hosts, data in several stripes, members that die or send false data,
connections of strangers, files that a host already has, and files with holes.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from support.agent.broadcasting import Members, members
from support.agent.certificates import make_certs
from support.waiting import wait_for
from tfdeploy.agent import pieces
from tfdeploy.agent.broadcast.holdings import WrongHash
from tfdeploy.agent.limit import BURST_S, RateLimit
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.pieces import PIECE_BYTES, Extent, read_extent

WITHIN_S = 20.0
NOISE = random.Random(7)
CONTENT = {
    "big": NOISE.randbytes(5 * PIECE_BYTES + 17),
    "deep/small": b"1",
    "deep/medium": NOISE.randbytes(PIECE_BYTES - 5),
    # The file is long enough for a second segment.
    "large": NOISE.randbytes(300 * PIECE_BYTES),
    "last": b"the end",
}


def whole(world: Members, name: str) -> bool:
    return world.members[name].holdings.is_complete


def eventually(condition: Callable[[], bool]) -> None:
    wait_for(condition, WITHIN_S, "the broadcast goes on")


def test_a_chain_brings_everything_to_all(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2", "n3") as world:
        for name in world.names:
            world.begin(name)
        world.feed("n1", "here"), world.feed("n2", "n1"), world.feed("n3", "n2")
        world.roots()
        assert world.send("n1") == world.cut.count
        eventually(lambda: whole(world, "n3"))
        for name in world.names:
            assert world.received(name) == CONTENT
            assert {os.stat(tmp_path / name / "new" / path).st_mtime for path in CONTENT} == {7.0}
        # Each byte arrives exactly once.
        assert world.members["n3"].holdings.received_bytes == world.cut.total_bytes


def test_stripes_come_from_several_parents(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2", "n3") as world:
        for name in world.names:
            world.begin(name)
        world.feed("n1", "here", "n2"), world.feed("n2", "n1", "here"), world.feed("n3", "n1", "n2")
        world.roots()
        half = world.send("n1"), world.send("n2")
        assert sum(half) == world.cut.count and abs(half[0] - half[1]) <= 1
        for name in world.names:
            eventually(lambda name=name: whole(world, name))
            assert world.received(name) == CONTENT


def test_another_parent_goes_on_where_a_dead_one_ended(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2", "n3") as world:
        for name in world.names:
            world.begin(name)
        world.feed("n1", "here"), world.feed("n2", "n1"), world.feed("n3", "n2")
        world.roots()
        world.send("n1", 100)
        eventually(
            lambda: (
                world.members["n3"].holdings.have_bytes == world.members["n1"].holdings.have_bytes
            )
        )
        world.members["n2"].close()
        eventually(lambda: not world.members["n3"].reports.empty())
        assert world.members["n3"].reports.get()[:2] == ("n2", "lost")
        world.feed("n3", "n1")
        world.send("n1")
        eventually(lambda: whole(world, "n3"))
        assert world.received("n3") == CONTENT
        assert world.members["n3"].holdings.received_bytes == world.cut.total_bytes


def test_hosts_that_have_it_feed_others_by_themselves(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2") as world:
        world.begin("n1", has=True), world.begin("n2")
        world.feed("n1"), world.feed("n2", "n1")
        world.roots()
        eventually(lambda: whole(world, "n2"))
        assert world.received("n2") == CONTENT
        assert world.members["n1"].holdings.received_bytes == 0


def test_a_file_that_only_seems_right_is_received_after_all(tmp_path: Path) -> None:
    other = CONTENT["big"][:-1] + b"?"
    with members(tmp_path, CONTENT, "n1", "n2") as world:
        world.begin("n1"), world.begin("n2", has=True, old={"big": other})
        world.feed("n1", "here"), world.feed("n2")
        world.roots()
        eventually(lambda: not world.members["n2"].reports.empty())
        assert world.members["n2"].reports.get()[:2] == ("n2", "differs")
        world.send("n1")
        world.feed("n2", "n1")
        eventually(lambda: whole(world, "n2"))
        assert (tmp_path / "n2" / "new" / "big").read_bytes() == CONTENT["big"]
        # The broadcast is complete but not installed yet, so the old file is unchanged.
        assert (tmp_path / "n2" / "old" / "big").read_bytes() == other
        assert world.members["n2"].holdings.received_bytes <= PIECE_BYTES


def test_a_file_that_is_all_new_is_not_read_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"large": NOISE.randbytes(300 * PIECE_BYTES)}
    with members(tmp_path, CONTENT, "n1") as world:
        world.begin("n1", old=old)
        world.feed("n1", "here")
        world.roots()
        read: list[bytes] = []

        def counted(place: bytes, extent: Extent) -> bytes:
            read.append(place)
            return read_extent(place, extent)

        monkeypatch.setattr(pieces, "read_extent", counted)
        world.send("n1")
        assert world.received("n1") == CONTENT
        # The agent reads each of the two segments of the old file at most four times.
        assert 0 < sum(place.endswith(b"old/large") for place in read) <= 2 * 4


def test_what_an_older_file_has_at_the_same_place_is_not_sent(tmp_path: Path) -> None:
    old = {
        "large": CONTENT["large"][: 250 * PIECE_BYTES],
        "big": CONTENT["big"][:7] + b"X" + CONTENT["big"][8:],
    }
    with members(tmp_path, CONTENT, "n1") as world:
        world.begin("n1", old=old)
        world.feed("n1", "here")
        world.roots()
        sent = world.send("n1")
        assert world.received("n1") == CONTENT
        # Only these pieces are sent: the first piece of `big`, the piece that has `small` and
        # `medium`, 50 pieces at the end of `large`, and the piece that has `last`.
        assert sent == 1 + 1 + 50 + 1


def test_halves_are_gone_on_with_at_the_piece(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1") as world:
        world.begin("n1")
        world.feed("n1", "here")
        world.roots()
        world.send("n1", 200)
        world.members["n1"].close()
        world.begin("n1")
        world.feed("n1", "here")
        world.roots()
        assert world.send("n1") == world.cut.count - 200
        assert world.received("n1") == CONTENT


def test_holes_stay_holes(tmp_path: Path) -> None:
    text = bytearray(40 * PIECE_BYTES)
    text[5 * PIECE_BYTES + 9000] = 1
    text[30 * PIECE_BYTES] = 1
    with members(tmp_path, {"sparse": bytes(text)}, "n1", "n2", sparse=("sparse",)) as world:
        world.begin("n1"), world.begin("n2")
        world.feed("n1", "here"), world.feed("n2", "n1")
        world.roots()
        assert world.send("n1") == 2
        eventually(lambda: whole(world, "n2"))
        for name in world.names:
            assert world.received(name) == {"sparse": bytes(text)}
            assert os.stat(tmp_path / name / "new" / "sparse").st_blocks * 512 <= 2 * 8192


def test_a_wrong_piece_is_not_put_in_place_and_its_sender_is_named(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2") as world:
        world.begin("n1"), world.begin("n2")
        world.feed("n1", "here")
        world.roots()
        world.send("n1")
        place = tmp_path / "n1" / "new" / "large"
        # The parent's stored piece is now wrong, as if its disk was damaged or the host lied.
        with place.open("r+b") as stream:
            stream.seek(3 * PIECE_BYTES)
            stream.write(b"lie")
        world.feed("n2", "n1")
        eventually(lambda: not world.members["n2"].reports.empty())
        parent, word, why = world.members["n2"].reports.get()
        assert (parent, word) == ("n1", "wrong") and "piece" in why
        world.feed("n2", "here")
        world.send("n2")
        assert world.received("n2") == CONTENT


def test_wrong_sums_are_refused(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1") as world:
        world.begin("n1")
        world.feed("n1", "here")
        world.roots()
        leaves = world.leaves[0]
        with pytest.raises(WrongHash):
            world.members["n1"].accept_leaves_and_find_lacking_bitmap(0, leaves[:-1] + b"?")
        with pytest.raises(WrongHash):
            # The member has not accepted the checksums of this piece yet, so it refuses the piece.
            world.members["n1"].store_from_control(0, 0, world.piece(0, 0))
        world.members["n1"].accept_leaves_and_find_lacking_bitmap(0, leaves)
        for segment, index, content in (
            (0, 0, world.piece(0, 1)),
            (0, 999, b""),
            (9, 0, b""),
            (0, 0, b""),
        ):
            with pytest.raises(WrongHash):
                world.members["n1"].store_from_control(segment, index, content)
        assert world.members["n1"].holdings.have_bytes == 0


def test_strangers_learn_nothing(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1", "n2") as world:
        world.begin("n1", has=True)
        world.roots()
        world.feed("n1")
        stranger = make_certs(["n2"])["n2"]
        _, client = tls.make_contexts(stranger)  # type: ignore[arg-type]
        client.verify_mode = ssl.CERT_NONE
        for token in ("x", handshake_gate.server_name_token(world.certs["n1"]["ca"], "n1")):
            with pytest.raises(OSError):  # noqa: SIM117 - any of the next calls may fail
                with socket.create_connection(("127.0.0.1", world.ports["n1"]), timeout=5) as plain:
                    with client.wrap_socket(plain, server_hostname=token) as channel:
                        channel.sendall(b'{"broadcast": "b1"}\n')
                        if not channel.recv(1):
                            raise OSError("it hung up")
        with socket.create_connection(("127.0.0.1", world.ports["n1"]), timeout=5) as plain:
            plain.sendall(b'{"broadcast": "b1"}\n')
            with pytest.raises(ConnectionResetError):
                plain.recv(100)


def test_a_port_that_another_process_has_is_passed_over(tmp_path: Path) -> None:
    with members(tmp_path, CONTENT, "n1") as world:
        member = world.begin("n1")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert member.listen(port, port) is None


def test_a_rate_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("tfdeploy.agent.limit.time.sleep", waited.append)
    limit = RateLimit(1000)
    for _ in range(10):
        limit.wait_for_bytes(500)
    assert waited and max(waited) == pytest.approx(5.0 - BURST_S, abs=0.2)
