"""Test that a data set reaches all hosts. The tests check this by the kernel's counters and by
rsync, not by tfdeploy's own reports.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.files.odd_tree import MIB, SPARSE_BYTES, write_odd_tree
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import read_traffic_by_link
from support.lab.hosts import on_host
from support.lab.last_word import find_differences
from support.lab.releases import job_file
from tfdeploy.lab import Lab

pytestmark = [pytest.mark.isolated, pytest.mark.long]
SITES, THIN = 2, "40mbit"
SET_BYTES = 24 * MIB
# At most this many times the size of the data set may pass the slow link. Headers, retries and
# other traffic of SSH count too.
MOST_TIMES = 1.05
# The largest number of disk blocks that the sparse file may use. It has two small areas of data,
# and the whole piece around each area may be stored.
SPARSE_BLOCKS = 2 * MIB // 512


@pytest.fixture(scope="module")
def two_sites(new_lab: Callable[..., Lab]) -> Lab:
    """Return a lab with n1 and n2 at the operator's site, and n3 and n4 behind a slow link."""
    return new_lab("isolated", 4, rate="200mbit", sites=SITES, between=THIN)


def into_the_second_site(lab: Lab) -> int:
    return read_traffic_by_link(lab)["router2"]["from_bytes"]


def test_a_thin_line_between_sites_carries_each_byte_once(
    two_sites: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(two_sites)
    job_file(operator, "thin", data={"set": "./set"})
    source = operator.cwd / "set"
    source.mkdir()
    (source / "shard").write_text("small")
    # This sync sends the agent and the code, so that later counts do not include them.
    operator.run("sync", exit_code=0)
    (source / "shard").write_bytes(os.urandom(SET_BYTES))
    before = into_the_second_site(two_sites)
    operator.run("sync", exit_code=0)
    carried = into_the_second_site(two_sites) - before
    assert SET_BYTES <= carried <= MOST_TIMES * SET_BYTES, f"{carried / SET_BYTES:.3f} x the set"
    for host in two_sites.hosts:
        assert find_differences(two_sites, host, source, "tfdeploy/thin/data/set") == ""


def test_rsync_has_nothing_to_say_and_holes_stay_holes(
    few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(few_hosts)
    job_file(operator, "last", data={"odd": "./odd"})
    source = operator.cwd / "odd"
    write_odd_tree(source)
    for change in (lambda: None, lambda: change_some(source)):
        change()
        operator.run("sync", "-y", exit_code=0)
        for host in few_hosts.hosts:
            assert find_differences(few_hosts, host, source, "tfdeploy/last/data/odd") == ""
            size, blocks = on_host(
                few_hosts, host, "stat -c '%s %b' tfdeploy/last/data/odd/sparse"
            ).split()
            assert (int(size), int(blocks) <= SPARSE_BLOCKS) == (SPARSE_BYTES, True), blocks


def change_some(source: Path) -> None:
    """Change content, modes, times and links of files, also in read-only folders.

    One hard link is replaced by a separate file, and one new hard link is made.
    """
    (source / "modes/folder 500/file 444").write_text("longer than it was before")
    (source / "modes/folder 755/file 644").chmod(0o640)
    (source / "modes/folder 755").chmod(0o711)
    os.utime(source / "plain", ns=(1, 1_234_567_890_123_456_789))
    (source / "links/to nothing").unlink()
    (source / "links/to nothing").symlink_to("still not there")
    (source / "links/the same").unlink()
    (source / "links/the same").write_text("a file of its own")
    os.link(source / "run.sh", source / "links/run.sh")
    (source / "none/here").rmdir()
    (source / "none/here").write_text("a file now")
    with (source / "sparse").open("r+b") as file:
        file.seek(500 * MIB)
        file.write(b"a third island")
