"""Test inventories and job files with random changes. tfdeploy either reads such a file, or refuses
it with an error that names the file and the line.

If the file is read, tfdeploy either makes a plan, or refuses with an error.

The environment variable TFDEPLOY_SOAK_FILES sets the number of files: 2,000 by default, more in
`make soak`. With TFDEPLOY_FILE_SEED, a series of files is repeated. A file for which a test fails
is printed and stored in tests/golden/files; from then on, every run of the tests reads it.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from support.fuzz import reading
from support.fuzz.mutate import mutate
from support.fuzz.seeds import CORPUS, Kind, list_seeds, read_corpus
from tfdeploy.config.inventory import InventoryFile
from tfdeploy.errors import Refused, UsageError
from tfdeploy.model.facts import Gpu, HostFacts, KeepFolderFact, LiveRun
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

FILES = int(os.environ.get("TFDEPLOY_SOAK_FILES", "2000"))
SEED = int(os.environ.get("TFDEPLOY_FILE_SEED", "0")) or random.randrange(1, 1 << 30)
# Limits for one file: seconds of CPU time, and KiB of memory.
MOST_S, MOST_KIB = 3.0, 100 << 10
# No plan is made for an inventory with more hosts than this.
MOST_HOSTS = 24
# The fraction of the valid files for which a plan is made. Making a plan takes longer than all
# other steps together.
PLANNED = 0.5 if FILES == 2_000 else 1.0
PROGRAMS = (
    "p = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\np.add_argument('--task_index', "
    "type=int)\n",
    "import tensorflow as tf\ntf.app.flags.DEFINE_string('job_name', '', '')\ns = "
    "tf.train.Server({'ps': ['localhost:1']})\n",
    "from tensorflow import keras\nwith tf.distribute.MultiWorkerMirroredStrategy().scope():\n   "
    " m.fit(x)\n",
    "print 'two'\n",
    "shutil.rmtree('checkpoints')\nimport helper\n",
    "(" * 300,
    "\0",
)
ODD_HOSTS: tuple[dict[str, object], ...] = (
    *(
        {"python": None},
        {"rsync": None},
        {"free_disk_bytes": 0},
        {"free_ports": ()},
        {"boot_id": ""},
        {"python_version": None},
    ),
    *(
        {"tensorflow": None},
        {"tensorflow": "1.15.0"},
        {"tensorflow": "x.y"},
        {"tf_keras": "2.21.0"},
        {"environment": "/home/ml/e"},
    ),
    *(
        {"gpu_error": "no driver"},
        {"problems": ("disk is slow",)},
        {"proxies": ("http_proxy",)},
        {"preset": ("TF_CONFIG",)},
    ),
    *(
        {"hosts_file_loopback": ("n1", "n2")},
        {"kill_user_processes": True},
        {"home": "/home/\udcff"},
        {"workdir": "/"},
    ),
    *(
        {"gpus": (Gpu(index=7, name="H200", memory_mib=0, used_mib=1 << 20),)},
        {"taken_ports": {"2222": "sshd", "2223": ""}},
    ),
)
FactsOf = Callable[..., HostFacts]


@dataclass
class Series:
    """Reads mutated job files and inventories. If such a file is valid, makes a plan from it and a
    valid file of the other kind.
    """

    folder: Path
    facts_of: FactsOf
    inventories: list[Inventory] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def read_seeds(self) -> None:
        for seed in list_seeds():
            value = self._read(seed.kind, seed.text.encode())
            if isinstance(value, InventoryFile):
                self.inventories.append(value.inventory)
            elif value is not None:
                self.jobs.append(value)

    def examine(self, kind: Kind, content: bytes, chance: random.Random) -> None:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        self._follow(self._read(kind, content), chance)
        if chance.random() < 0.003:
            reading.check_command_line(
                ["inventory", "-i" if kind == "inventory" else "-j", f"{self.folder}/{kind}.yaml"]
            )
        took, after = (
            time.process_time() - began,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        )
        assert took < MOST_S, f"{took:.1f} s"
        assert after - before < MOST_KIB, f"{after - before} KiB more"

    def _read(self, kind: Kind, content: bytes) -> InventoryFile | Job | None:
        path = self.folder / f"{kind}.yaml"
        path.write_bytes(content)
        return reading.read_or_refuse(kind, path)

    def _follow(self, read_file: InventoryFile | Job | None, chance: random.Random) -> None:
        self._count("refused" if read_file is None else "read")
        if isinstance(read_file, InventoryFile):
            reading.check_inventory(read_file, self.folder / "again.yaml")
            self._plan(read_file.inventory, chance.choice(self.jobs), chance)
        elif read_file is not None:
            self._plan(chance.choice(self.inventories), read_file, chance)

    def _plan(self, inventory: Inventory, job: Job, chance: random.Random) -> None:
        if len(inventory.hosts) > MOST_HOSTS or chance.random() > PLANNED:
            return
        sources = {name: chance.choice(PROGRAMS) for name in ("train.py", "helper.py")}
        hosts = {host.name: _made_up(self.facts_of, host, job, chance) for host in inventory.hosts}
        try:
            plan = make_plan(
                inventory, job, hosts, release="r", sources=sources, run="j-1", now=1.8e9,
                operator="me@here",
                options=Options(
                    allow_public=True, any_mode=True, workers=chance.choice((None, None, 2)),
                    ignore_keep=chance.random() < 0.5,
                ),
            )  # fmt: skip
        except (Refused, UsageError) as error:
            assert error.what and error.next, vars(error)
            self._count("plan refused")
            return
        self._count("planned")
        reading.check_plan(plan)

    def _count(self, outcome: str) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + 1


def _made_up(facts_of: FactsOf, host: Host, job: Job, chance: random.Random) -> HostFacts:
    low, high = host.ports
    facts: dict[str, object] = {
        "free_ports": tuple(range(low, min(high + 1, low + 40))),
        "boot_id": host.name,
        "ssh_server_address": chance.choice(("192.0.2.77", "192.0.2.77", None, "fe80::1")),
        "clock_skew_s": chance.choice((0.0, 0.0, -1e9, 7.0)),
    }
    if chance.random() < 0.3:
        kept = chance.choice(job.keep) if job.keep else "ckpt"
        facts["keep"] = (
            KeepFolderFact(
                path=kept,
                newest=chance.choice((0.0, 1.8e9)),
                checkpoint=chance.choice((None, "model.ckpt-7")),
            ),
        )
    if chance.random() < 0.2:
        facts |= chance.choice(ODD_HOSTS)
    if chance.random() < 0.02:
        facts["live_runs"] = (
            LiveRun(run="old-1", who="me@here", started=chance.choice((None, 0.0, 1.8e9))),
        )
    return replace(facts_of(host, chance.choice((0, 0, 1, 2, 4))), **facts)


@pytest.fixture
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts_of: FactsOf) -> Iterator[Series]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TFDEPLOY_INVENTORY", raising=False)
    with reading.quick_folder() as folder:
        new_series = Series(folder=folder, facts_of=facts_of)
        new_series.read_seeds()
        yield new_series


@pytest.mark.fault("1 20,000 mutated inventories and job files")
def test_every_mutated_file_is_read_or_refused_with_its_line(series: Series) -> None:
    start = list_seeds()
    others = [seed.text.encode() for seed in start]
    for number in range(FILES):
        chance = random.Random(SEED << 32 | number)
        seed = chance.choice(start)
        content = mutate(seed.text.encode(), others, chance)
        try:
            series.examine(seed.kind, content, chance)
        except BaseException as error:
            kept = CORPUS / f"{seed.kind}-{SEED}-{number}.yaml"
            kept.write_bytes(content)
            words = (
                f"TFDEPLOY_FILE_SEED={SEED}, number {number}, kept in {kept}: {content[:3000]!r}"
            )
            raise AssertionError(words) from error
    print(SEED, series.counts)
    # Check that enough changed files are valid. If every change broke the YAML syntax, only the
    # YAML parser would be tested.
    assert min(series.counts.values()) > FILES // 100, series.counts


@pytest.mark.parametrize("name", read_corpus())
def test_file_that_once_failed_is_handled(series: Series, name: str) -> None:
    series.examine(
        "job" if name.startswith("job") else "inventory", read_corpus()[name], random.Random(1)
    )


def test_unmutated_files_are_read_and_planned(series: Series) -> None:
    for number, seed in enumerate(list_seeds()):
        series.examine(seed.kind, seed.text.encode(), random.Random(number))
    assert series.counts["planned"] > 5 and series.counts["read"] > 8 * series.counts["refused"], (
        series.counts
    )
