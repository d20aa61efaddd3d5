"""Run the members of one broadcast in this process, on loopback, with real TLS and real files.

The test plays the control machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.agent.certificates import make_certs
from tfdeploy.agent import pieces
from tfdeploy.agent.broadcast.holdings import Holdings
from tfdeploy.agent.broadcast.member import Member
from tfdeploy.agent.broadcast.piece_files import BroadcastFile, PieceFiles
from tfdeploy.agent.broadcast.receive import Parent
from tfdeploy.agent.mesh import handshake_gate
from tfdeploy.agent.pieces import Pieces

ID = "b1"


class Members:
    """The members (hosts) of one broadcast. `content` maps the path of each sent file to its bytes,
    in the order of sending.
    """

    def __init__(
        self,
        folder: Path,
        content: dict[str, bytes],
        names: list[str],
        sparse: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.content, self.sparse = folder, content, sparse
        self.certs = make_certs(names)
        self.names, self.members, self.ports = names, dict[str, Member](), dict[str, int]()
        self.cut = Pieces([len(each) for each in content.values()])
        self.leaves = [self._leaves(number) for number in range(self.cut.segment_count)]

    def _leaves(self, segment: int) -> bytes:
        return b"".join(
            pieces.hash_piece(self.piece(segment, index))
            for index in range(self.cut.count_pieces(segment))
        )

    def piece(self, segment: int, index: int) -> bytes:
        texts = list(self.content.values())
        return b"".join(
            texts[file][at : at + length] for file, at, length in self.cut.segment(segment)[index]
        )

    def begin(
        self, name: str, *, has: bool = False, rate: int = 0, old: dict[str, bytes] | None = None
    ) -> Member:
        """Start the member `name`. If `has` is True, the member already has the files of the
        broadcast. `old` maps the path of each further file in the member's folder to its content.
        """
        before = self.folder / name / "old"
        before.mkdir(parents=True, exist_ok=True)
        old_files = {**(self.content if has else {}), **(old or {})}
        for path, text in old_files.items():
            (before / path).parent.mkdir(parents=True, exist_ok=True)
            (before / path).write_bytes(text)
        new = self.folder / name / "new"
        moved = [
            BroadcastFile(
                path.encode(),
                len(text),
                7_000_000_000,
                sparse=path in self.sparse,
                lacking=not has,
                partial=(new / path).exists(),
                old=len(old_files.get(path, b"")),
            )
            for path, text in self.content.items()
        ]
        holdings = Holdings(self.cut, PieceFiles(moved, str(before), str(new)))
        member = Member(ID, name, self.names, holdings, self.certs[name], rate)  # type: ignore[arg-type]
        port = member.listen(20000, 60000)
        assert port is not None
        self.members[name], self.ports[name] = member, port
        return member

    def parent(self, name: str, stripes: int = 1, *wanted: int) -> Parent:
        token = handshake_gate.server_name_token(self.certs[name]["ca"], name)
        return Parent(
            name=name,
            address="127.0.0.1",
            port=self.ports[name],
            token=token,
            stripes=stripes,
            wanted_stripes=frozenset(wanted or range(stripes)),
        )

    def feed(self, child: str, *parents: str) -> None:
        """Tell the member `child` which parents (other members) send to it. The first parent sends
        stripe 0, the second stripe 1, and so on. The name `here` stands for the control machine.
        """
        stripes = max(1, len(parents))
        fed = {
            name: self.parent(name, stripes, number)
            for number, name in enumerate(parents)
            if name != "here"
        }
        here = frozenset(number for number, name in enumerate(parents) if name == "here")
        self.members[child].set_senders(stripes, fed, here)

    def roots(self, *names: str) -> None:
        for name in names or self.members:
            self.members[name].holdings.add_root_hashes(
                0, [pieces.hash_leaves(each) for each in self.leaves]
            )

    def send(self, name: str, most: int = 1 << 30) -> int:
        """Send the member `name` pieces that it wants, as the control machine would, but not more
        than `most` pieces. Return the number of pieces sent.
        """
        sent = 0
        for segment, leaves in enumerate(self.leaves):
            for index in pieces.marked_numbers(
                self.members[name].accept_leaves_and_find_lacking_bitmap(segment, leaves)
            ):
                if sent >= most:
                    return sent
                self.members[name].store_from_control(segment, index, self.piece(segment, index))
                sent += 1
        return sent

    def received(self, name: str) -> dict[str, bytes]:
        return {path: (self.folder / name / "new" / path).read_bytes() for path in self.content}

    def close(self) -> None:
        for member in self.members.values():
            member.close()


@contextmanager
def members(
    folder: Path, content: dict[str, bytes], *names: str, sparse: tuple[str, ...] = ()
) -> Iterator[Members]:
    made = Members(folder, content, list(names), sparse)
    try:
        yield made
    finally:
        made.close()
