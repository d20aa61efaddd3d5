"""What one host lacks of another one's keep folders, from the two listings alone."""

from __future__ import annotations

import pytest

from tfdeploy.model.listing import Found
from tfdeploy.operations.copy.copy_keep import Lack, lack

S = 10**9
CKPT = Found("ck/model.ckpt-7.index", 10, 5 * S)
RECORD = Found("ck/checkpoint", 20, 6 * S)
BOTH = (CKPT, RECORD)
OLD = Found("ck/checkpoint", 20, 3 * S)
OTHER = Found("ck/backup/chief/checkpoint", 20, 9 * S)
LOG = Found("ck/events.n3", 99, 9 * S)
LINK = Found("ck/latest", 0, 1, "model.ckpt-7")
OF_A_WORKER = Found("ck/workertemp_1/checkpoint", 20, 9 * S)
LIKE_IT = Found("ck/workertemp_one/checkpoint", 20, 9 * S)


@pytest.mark.parametrize(
    ("source", "there", "files", "aside"),
    [
        (BOTH, (), BOTH, ()),
        (BOTH, BOTH, (), ()),
        (BOTH, (Found("ck/model.ckpt-7.index", 10, 5 * S + 900), RECORD), (), ()),
        (BOTH, (CKPT, OLD), (RECORD,), ()),
        (BOTH, (*BOTH, LOG), (), ()),
        (BOTH, (*BOTH, OTHER), (), ("ck/backup/chief/checkpoint",)),
        ((), BOTH, (), ("ck/checkpoint",)),
        ((*BOTH, LINK), (), BOTH, ()),
        ((*BOTH, OF_A_WORKER, LIKE_IT), (), (*BOTH, LIKE_IT), ()),
        (BOTH, (*BOTH, OF_A_WORKER), (), ("ck/workertemp_1/checkpoint",)),
        (BOTH, (Found("ck/checkpoint", 0, 1, "elsewhere"), CKPT), (RECORD,), ()),
    ],
)
def test_lack(source: tuple[Found, ...], there: tuple[Found, ...], files: tuple[Found, ...], aside: tuple[str, ...]) -> None:
    assert lack(source, there) == Lack(files, aside)
