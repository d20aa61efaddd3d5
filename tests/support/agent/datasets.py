"""A host that receives data sets. The tests call its verbs directly."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

from support.agent.certificates import make_certs
from tfdeploy.agent import bitmap, listing, pieces
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.serve.server import find_verb


class Host:
    """A host. The test calls its verbs directly, as the control machine does through a session."""

    def __init__(self, context: SessionContext, job: str = "job") -> None:
        self.context, self.job = context, job
        self.folder = Path(context.workdir) / job / "data" / "digits"

    def call(self, verb: str, blob: bytes = b"", **args: Any) -> Any:
        return find_verb(verb)(
            Call(self.context, {"job": self.job, "name": "digits", **args}, blob)
        )

    def lack(self, source: Path, **args: Any) -> list[str]:
        self.rows = listing.walk(str(source)) if source.is_dir() else listing.list_file(str(source))
        self.root = source if source.is_dir() else source.parent
        answer = self.call("data.lack", self.rows.pack(), **args)
        self.lacking = list(bitmap.marked_numbers(bitmap.unpack(answer["lacking"])))
        self.staging = Path(answer["staging"])
        assert answer["lacking_bytes"] == sum(self.rows.sizes[row] for row in self.lacking)
        return self.marked_paths(answer["lacking"])

    def marked_paths(self, packed: str) -> list[str]:
        """Return the paths of the rows that are marked in a packed bitmap."""
        rows = bitmap.marked_numbers(bitmap.unpack(packed))
        return [os.fsdecode(self.rows.path(row)) for row in rows]

    def bring(self, most: int = 1 << 30) -> int:
        """Send the pieces that the host lacks. Return how many pieces were sent."""
        moved = [row for row in self.lacking if self.rows.sizes[row]]
        cut = pieces.Pieces([self.rows.sizes[row] for row in moved])
        texts = [(self.root / os.fsdecode(self.rows.path(row))).read_bytes() for row in moved]
        args = {
            "job": self.job,
            "name": "digits",
            "id": "b1",
            "host": "n1",
            "members": ["n1"],
            "certs": make_certs(["n1"])["n1"],
            "ports": [30000, 60000],
            "moved": bitmap.pack(bitmap.make_bitmap(moved, len(self.rows))),
        }
        cancelled, listening = threading.Event(), threading.Event()
        call = Call(self.context, args, b"", lambda item, blob: listening.set(), cancelled)
        thread = threading.Thread(daemon=True, target=find_verb("broadcast.join"), args=(call,))
        thread.start()
        assert listening.wait(120)
        sent = 0
        try:
            self.call("broadcast.feeds", id="b1", stripes=1, parents=[], here=[0])
            for segment in range(cut.segment_count):
                extents = cut.segment(segment)
                contents = [
                    b"".join(texts[file][at : at + length] for file, at, length in piece)
                    for piece in extents
                ]
                leaves = b"".join(map(pieces.hash_piece, contents))
                self.call(
                    "broadcast.roots",
                    id="b1",
                    first=segment,
                    roots=[pieces.hash_leaves(leaves).hex()],
                )
                wanted = bitmap.unpack(
                    self.call("broadcast.leaves", leaves, id="b1", segment=segment)["wanted"]
                )
                for index in bitmap.marked_numbers(wanted):
                    if sent < most:
                        self.call(
                            "broadcast.put", contents[index], id="b1", segment=segment, index=index
                        )
                        sent += 1
        finally:
            cancelled.set()
            thread.join()
        return sent

    def copy_to_staging(self) -> None:
        """Copy the files that the host lacks to its staging folder, as rsync does."""
        for path in (os.fsdecode(self.rows.path(row)) for row in self.lacking):
            (self.staging / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.root / path, self.staging / path)

    def commit(self) -> bool:
        return bool(self.call("data.commit")["ok"])

    def sync(self, source: Path) -> None:
        self.lack(source)
        self.bring()
        assert self.commit()
