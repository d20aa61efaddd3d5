"""Send releases to one simulated host through the agent's own verbs. A release is a copy of a code
folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.serve.server import find_verb

# {path: content}. Bytes stand for a file, ("exec", bytes) for an executable file, and a str for a
# symbolic link with this target.
Tree = Any


def rows(tree: Tree) -> list[Any]:
    entries: list[Any] = []
    for path, content in sorted(tree.items()):
        if isinstance(content, str):
            entries.append([path, "link", 0, "", content])
        else:
            kind, raw = content if isinstance(content, tuple) else ("file", content)
            entries.append([path, kind, len(raw), hashlib.sha256(raw).hexdigest(), ""])
    return entries


def packed(tree: Any) -> bytes:
    """Return the packed manifest of `tree`, which is a Tree or a list of manifest rows."""
    return zlib.compress(json.dumps(rows(tree) if isinstance(tree, dict) else tree).encode())


class Host:
    def __init__(self, workdir: Path) -> None:
        self.context = SessionContext(str(workdir), "")
        self.releases = workdir / "job" / "releases"

    def call(self, verb: str, release: str, blob: bytes = b"", **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, dict(args, job="job", release=release), blob))

    def begin(self, release: str, tree: Any) -> Any:
        return self.call("release.begin", release, packed(tree))

    def missing(self, release: str, tree: Any) -> list[str]:
        paths: list[str] = self.call("release.missing", release, packed(tree))["missing"]
        return paths

    def send(self, begun: Any, tree: Tree, but: str = "") -> None:
        for path in begun["missing"]:
            content = tree[path]
            if path != but:
                raw = content[1] if isinstance(content, tuple) else content
                assert isinstance(raw, bytes)
                (Path(begun["staging"]) / path).write_bytes(raw)

    def commit(self, release: str, begun: Any, **args: Any) -> list[str]:
        changed: list[str] = self.call("release.commit", release, staging=begun["staging"], **args)[
            "changed"
        ]
        return changed

    def sync(self, release: str, tree: Tree, **args: Any) -> Any:
        begun = self.begin(release, tree)
        self.send(begun, tree)
        assert self.commit(release, begun, **args) == []
        return begun

    def tree(self, release: str) -> Tree:
        files: Tree = {}
        root = self.releases / release
        for base, folders, names in os.walk(root):
            for name in names + [
                folder for folder in folders if os.path.islink(os.path.join(base, folder))
            ]:
                path = Path(base) / name
                key = str(path.relative_to(root))
                if path.is_symlink():
                    files[key] = os.readlink(path)
                else:
                    raw = path.read_bytes()
                    files[key] = ("exec", raw) if os.access(path, os.X_OK) else raw
        return files


TREE: Tree = {
    "train.py": b"print(1)\n",
    "run.sh": ("exec", b"#!/bin/sh\n"),
    "lib/deep/x.py": b"x",
    "lib/same.py": b"x",
    "latest": "lib/deep/x.py",
    "folder": "lib",
    "b\udcff \U0001f600\n'\"-": b"odd",
    "-dash": b"",
}
