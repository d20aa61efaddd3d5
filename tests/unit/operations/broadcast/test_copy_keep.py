"""Test which files must be copied from one host's `keep` folders to another host. This is computed
from the listings of both hosts.
"""

from __future__ import annotations

import pytest

from tfdeploy.model.answers.files import FoundFile
from tfdeploy.operations.broadcast.copy_keep import KeepDifference, find_keep_difference

S = 10**9
CKPT = FoundFile("ck/model.ckpt-7.index", 10, 5 * S)
RECORD = FoundFile("ck/checkpoint", 20, 6 * S)
BOTH = (CKPT, RECORD)
OLD = FoundFile("ck/checkpoint", 20, 3 * S)
NEWER = FoundFile("ck/checkpoint", 20, 8 * S)
OTHER = FoundFile("ck/backup/chief/checkpoint", 20, 9 * S)
LOG = FoundFile("ck/events.n3", 99, 9 * S)
LINK = FoundFile("ck/latest", 0, 1, "model.ckpt-7")
OF_A_WORKER = FoundFile("ck/workertemp_1/checkpoint", 20, 9 * S)
LIKE_IT = FoundFile("ck/workertemp_one/checkpoint", 20, 9 * S)


@pytest.mark.parametrize(
    ("source", "existing", "files", "aside"),
    [
        (BOTH, (), BOTH, ()),
        (BOTH, BOTH, (), ()),
        (BOTH, (FoundFile("ck/model.ckpt-7.index", 10, 5 * S + 900), RECORD), (), ()),
        (BOTH, (CKPT, OLD), (RECORD,), ()),
        (BOTH, (CKPT, NEWER), (RECORD,), ("ck/checkpoint",)),
        (BOTH, (*BOTH, LOG), (), ()),
        (BOTH, (*BOTH, OTHER), (), ("ck/backup/chief/checkpoint",)),
        ((), BOTH, (), ("ck/checkpoint",)),
        ((*BOTH, OF_A_WORKER, LIKE_IT), (), (*BOTH, LIKE_IT), ()),
        (BOTH, (*BOTH, OF_A_WORKER), (), ("ck/workertemp_1/checkpoint",)),
        (BOTH, (FoundFile("ck/checkpoint", 0, 1, "elsewhere"), CKPT), (RECORD,), ()),
    ],
)
def test_missing_keep_files(
    source: tuple[FoundFile, ...],
    existing: tuple[FoundFile, ...],
    files: tuple[FoundFile, ...],
    aside: tuple[str, ...],
) -> None:
    assert find_keep_difference(source, existing) == KeepDifference(files, aside)


def test_missing_links() -> None:
    leads_out = FoundFile("ck/out", 0, 1, "/etc/passwd")
    source = (*BOTH, LINK, leads_out)
    assert find_keep_difference(source, BOTH).links == ((LINK.path, LINK.target),)
    stale = FoundFile("ck/latest", 0, 9 * S, "model.ckpt-6")
    assert find_keep_difference(source, (*BOTH, stale)).links == ((LINK.path, LINK.target),)
    same = FoundFile("ck/latest", 0, 9 * S, "model.ckpt-7")
    assert find_keep_difference(source, (*BOTH, same)) == KeepDifference((), ())
