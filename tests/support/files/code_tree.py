"""Write files to a code folder, and list the paths that tfdeploy reads from it."""

import subprocess
from pathlib import Path

from tfdeploy.tree import read_tree

GIT = (
    "git",
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@example.org",
    "-c",
    "protocol.file.allow=always",
    "-c",
    "commit.gpgsign=false",
)


def git(folder, *args):
    subprocess.run([*GIT, *args], cwd=folder, check=True, capture_output=True)


def put(root, path, text="x"):
    place = Path(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def paths(root, **options):
    return [entry.path for entry in read_tree(root, **options).entries]
