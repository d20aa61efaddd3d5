"""Read the code and data sets that a launch or sync sends, from this machine or from hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Secret
from tfdeploy.model.manifest import Manifest
from tfdeploy.model.report.code_size import large_code
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.origin import list_origin_data
from tfdeploy.operations.broadcast.split import Split, SplitRequest, decide_split
from tfdeploy.operations.copy.code_files import CodeFiles
from tfdeploy.operations.probe import ProbeQuestions, probe
from tfdeploy.operations.sending.withheld_files import withheld_files
from tfdeploy.planning.datasets import check_splits, splits
from tfdeploy.planning.flags import role_programs
from tfdeploy.planning.seats import hosts_to_probe, seats_of
from tfdeploy.planning.source import source
from tfdeploy.planning.source.source import Program
from tfdeploy.transport.protocols import Fleet
from tfdeploy.tree import DataListing, read_data, read_sources, read_tree
from tfdeploy.tree.listing import IGNORE_FILE
from tfdeploy.tree.secret_search import find_values


@dataclass(frozen=True)
class Shipment:
    """The code and data sets of one launch or sync.

    `data` has the listing of each data set. `origins` has the host that a data set comes from.
    `splits` tells which host gets which files of a split data set. `by_rsync` names the data sets
    that rsync sends. The keys of these mappings are names of data sets.
    """

    job: str
    manifest: Manifest
    code: CodeFiles
    data: dict[str, DataListing] = field(default_factory=dict)
    origins: dict[str, Host] = field(default_factory=dict)
    splits: dict[str, Split] = field(default_factory=dict)
    by_rsync: frozenset[str] = frozenset()
    _read: list[Program] = field(default_factory=list)  # cached program; at most one entry

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return the text of the programs in the code, by path."""
        return read_sources(self.manifest)

    def program(self, job: Job) -> Program:
        """Return the job's program, which is read only once.

        If roles have their own commands, their programs are combined.
        """
        if not self._read:
            self._read.append(source.merged(role_programs.read(job, self.sources)))
        return self._read[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about the code."""
        large = large_code(self.manifest)
        return (*self.manifest.warnings, *([large] if large else []))

    def broadcasts(self) -> dict[str, DataSet]:
        """Return the data sets that are sent by broadcast, by name."""
        return {
            name: DataSet(listing, self.origins.get(name), self.splits.get(name))
            for name, listing in self.data.items()
            if name not in self.by_rsync
        }


def path_in_code(job: Job, source: str) -> str | None:
    """Return the path of a data source relative to the code, or None if it is outside."""
    code = Path(job.code).resolve()
    path = Path(source).resolve()
    return path.relative_to(code).as_posix() if path != code and path.is_relative_to(code) else None


def read_shipment(
    job: Job, cache: Path | None, hosts: Iterable[Host] = (), *, allow_secrets: bool = False
) -> Shipment:
    """Read the code and data of this machine.

    `hosts` are all hosts of the inventory. Their private keys are never sent. `allow_secrets`:
    accept other private keys in the code. Raises ConfigError if code or data is missing, or if a
    file that must not be sent is in a data set or tracked by git. Raises Refused if code or data is
    empty, if git is not installed, or if the code holds a private key.
    """
    withhold = withheld_files(job, hosts)
    local_sources = {name: source for name, source in job.data.items() if source.from_host is None}
    sources = [
        *(source.path for source in local_sources.values()),
        *([job.setup_wheels] if job.setup_wheels else []),
    ]
    left_out = [*job.keep, *(path for source in sources if (path := path_in_code(job, source)))]
    manifest = read_tree(Path(job.code), exclude=left_out, cache=cache, withhold=withhold)
    if manifest.private_keys and not allow_secrets:
        path, line = manifest.private_keys[0]
        raise _refused_secret(manifest, path, line, "a private key")
    data = {
        name: read_data(Path(source.path), withhold, job.places.get(f"data.{name}"))
        for name, source in local_sources.items()
    }
    by_rsync = frozenset(name for name, source in local_sources.items() if source.via == "rsync")
    return Shipment(job.name, manifest, CodeFiles(manifest), data, by_rsync=by_rsync)


def refuse_secret_values(shipment: Shipment, secrets: Mapping[str, Secret]) -> None:
    """Raise Refused if a file of the code holds the value of a secret."""
    leaks = find_values(shipment.manifest, secrets)
    if leaks is not None:
        raise _refused_secret(
            shipment.manifest, leaks.path, leaks.line, f"the value of the secret {leaks.secret}"
        )


def _refused_secret(manifest: Manifest, path: str, line: int, what: str) -> Refused:
    return Refused(
        f"{path} holds {what}, and would be sent to every host",
        where=f"{manifest.root}/{path}:{line}",
        next=f"list it in {IGNORE_FILE}, or send it all the same with --allow-secrets-in-code",
    )


def with_origins(shipment: Shipment, fleet: Fleet, job: Job, hosts: Iterable[Host]) -> Shipment:
    """List the data sets that come from hosts, and return the shipment with their listings.

    `hosts` are all hosts of the inventory. Raises Refused if data is missing or unreadable.
    """
    known = {host.name: host for host in hosts}
    origins = {
        name: known[source.from_host]
        for name, source in job.data.items()
        if source.from_host is not None
    }
    if not origins:
        return shipment
    listings = {
        name: list_origin_data(fleet, host, job.data[name].path) for name, host in origins.items()
    }
    data = {name: listings.get(name) or shipment.data[name] for name in job.data}
    return replace(shipment, data=data, origins=origins)


def with_parts(
    shipment: Shipment,
    fleet: Fleet,
    job: Job,
    hosts: tuple[Host, ...],
    tasks: Mapping[str, str],
    where: Mapping[str, str],
) -> Shipment:
    """Choose which host gets which files of each split data set, and return the new shipment.

    `hosts` are all hosts that may hold some of the files. `tasks` has the host of each task.
    `where` has the position of each key in the job file. Raises UsageError if there are fewer files
    than workers.
    """
    split_data = {}
    for name in splits(job):
        workers = [(task, host) for task, host in tasks.items() if task.startswith("worker:")]
        workers.sort(key=lambda pair: int(pair[0].partition(":")[2]))
        others = job.data[name].others == "all"
        whole = frozenset(
            host for task, host in tasks.items() if others and not task.startswith("worker:")
        )
        ask = SplitRequest(
            job.name, name, tuple(host for _, host in workers), whole, where.get(f"data.{name}")
        )
        split_data[name] = decide_split(fleet, hosts, ask, shipment.data[name])
    return replace(shipment, splits=split_data) if split_data else shipment


def whole_shipment(
    fleet: Fleet,
    job: Job,
    cache: Path | None,
    inventory: Inventory | None,
    *,
    allow_secrets: bool = False,
) -> Shipment:
    """Return the shipment of a sync, including data that comes from hosts and split data.

    `inventory` is the whole inventory (None: only code and data of this machine). Raises the errors
    of reading and planning.
    """
    shipment = read_shipment(
        job, cache, inventory.hosts if inventory else (), allow_secrets=allow_secrets
    )
    if inventory is None:
        return shipment
    shipment = with_origins(shipment, fleet, job, inventory.hosts)
    if not splits(job):
        return shipment
    check_splits(job)
    names = hosts_to_probe(inventory, job.mode)
    asked = tuple(host for host in inventory.hosts if host.name in names)
    facts = probe(
        fleet, asked, ProbeQuestions.for_hosts(asked, job=job.name), emit=lambda event: None
    )
    tasks = {seat.task: seat.host for seat in seats_of(inventory, job, facts)}
    return with_parts(shipment, fleet, job, inventory.hosts, tasks, job.places)
