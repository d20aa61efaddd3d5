"""Make a release: check, test, build and tag it, and print the command that uploads it.

    scripts/release [--dry-run]

There is no release if the tree is dirty, if CHANGELOG.md or CITATION.cff does not have the version
of tfdeploy/__init__.py with a date, if the tag exists, if the tests fail, or if the source
distribution or the wheel lacks a file. The variable TESTS has the command that runs the tests
(default: "make test"). --dry-run does everything except the tests and the tag. Nothing is uploaded.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
# Files that the build adds to a source distribution.
BUILT = re.compile(r"PKG-INFO|setup\.cfg|tfdeploy\.egg-info/.*")


class ReleaseError(Exception):
    """A reason why there is no release, and what to type next."""


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def read_version() -> str:
    text = (ROOT / "tfdeploy/__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if match is None:
        raise ReleaseError("tfdeploy/__init__.py has no __version__")
    return match[1]


def check_repository(version: str) -> None:
    """Raise ReleaseError if the repository is not ready for a release of this version."""
    if changed := git("status", "--porcelain"):
        raise ReleaseError(f"the tree is dirty; commit or stash:\n{changed}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(heading, changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no heading `## {version} (YYYY-MM-DD)`; write it")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {version}\n" not in citation:
        raise ReleaseError(f"CITATION.cff has another version; write `version: {version}`")
    if git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists; raise __version__ in tfdeploy/__init__.py")


def run_tests() -> None:
    """Raise ReleaseError if the tests fail."""
    command = os.environ.get("TESTS", "make test")
    if subprocess.run(shlex.split(command), cwd=ROOT, check=False).returncode:
        raise ReleaseError(f"`{command}` failed; repair it and commit")


def build() -> tuple[Path, Path]:
    """Build HEAD into dist/ and return (source distribution, wheel)."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "head.tar")
        git("archive", "--output", str(archive), "HEAD")
        source = Path(folder, "source")
        shutil.unpack_archive(archive, source)
        options = ["--quiet", "--no-build-isolation", "--python", sys.executable]
        subprocess.run(
            [sys.executable, "-m", "uv", "build", *options, "--out-dir", str(DIST), str(source)],
            check=True,
        )
    (DIST / ".gitignore").unlink(missing_ok=True)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def check_content(sdist: Path, wheel: Path, version: str) -> None:
    """Raise ReleaseError unless the source distribution and the wheel each have exactly the files
    of HEAD that belong into them."""
    tracked = set(git("ls-files").splitlines())
    with tarfile.open(sdist) as archive:
        names = {each.name.partition("/")[2] for each in archive if not each.isdir()}
    compare("source distribution", {name for name in names if not BUILT.fullmatch(name)}, tracked)
    with zipfile.ZipFile(wheel) as packed:
        built = re.compile(r"tfdeploy-[^/]+\.(dist-info|data/data/share/man)/")
        packaged = {name for name in packed.namelist() if not built.match(name)}
    modules = {name for name in tracked if name.startswith("tfdeploy/")}
    compare("wheel", packaged, modules)
    for path in (sdist, wheel):
        if version not in path.name:
            raise ReleaseError(f"{path.name} is not of version {version}")


def compare(what: str, present: set[str], wanted: set[str]) -> None:
    """Raise ReleaseError if a wanted file is missing, or if there is an unexpected file."""
    missing, unwanted = sorted(wanted - present), sorted(present - wanted)
    if missing or unwanted:
        raise ReleaseError(
            f"the {what} lacks {missing[:20]} and should not have {unwanted[:20]}; "
            "see MANIFEST.in, and package-data in pyproject.toml"
        )


def main() -> int:
    dry_run = sys.argv[1:] == ["--dry-run"]
    if sys.argv[1:] and not dry_run:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        version = read_version()
        check_repository(version)
        if not dry_run:
            run_tests()
        sdist, wheel = build()
        check_content(sdist, wheel, version)
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    files = shlex.join(str(each.relative_to(ROOT)) for each in (sdist, wheel))
    if dry_run:
        print(f"dry run: {files} are complete; no tests were run, and there is no tag")
        return 0
    git("tag", "--annotate", f"v{version}", "--message", f"tfdeploy {version}")
    print(f"tagged v{version}. To publish it:")
    print(f"  git push origin v{version}")
    print(f"  uv publish --publish-url URL-OF-YOUR-INDEX {files}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
