"""Read the code and data sets that a launch or sync sends from this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job, Secret
from tfdeploy.model.manifest import Manifest, warn_of_large_code
from tfdeploy.operations.copy.code_files import CodeFiles
from tfdeploy.operations.sending.withheld_files import list_withheld_files
from tfdeploy.tree import DataListing, list_data_set, read_sources, read_tree
from tfdeploy.tree.listing import IGNORE_FILE
from tfdeploy.tree.secret_search import find_secret_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.operations.broadcast.split import DataSplit
    from tfdeploy.planning.source.source import Program


@dataclass(frozen=True)
class Shipment:
    """The code and data sets of one launch or sync.

    Three attributes are mappings whose keys are names of data sets. `data`: the listing of the data
    set. `origins`: the host from which the data set is read, if it is not on this machine.
    `splits`: which host gets which files of a split data set.

    `by_rsync`: the names of the data sets that rsync sends.
    """

    job: str
    manifest: Manifest
    code: CodeFiles
    data: dict[str, DataListing]
    by_rsync: frozenset[str]
    origins: dict[str, Host] = field(default_factory=dict)
    splits: dict[str, DataSplit] = field(default_factory=dict)
    _programs: list[Program] = field(default_factory=list)  # cached program; at most one entry

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return {path: text} of the program files in the code."""
        return read_sources(self.manifest)

    def program(self, job: Job) -> Program:
        """Return the job's program. Only the first call reads it; later calls use a cache.

        If roles have commands of their own, the result combines the programs of all roles.
        """
        if not self._programs:
            # Imported only here, because a sync does not read the program.
            from tfdeploy.planning.flags import role_programs
            from tfdeploy.planning.source import source

            self._programs.append(
                source.merge_programs(role_programs.read_programs(job, self.sources))
            )
        return self._programs[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about the code and the data sets."""
        large = warn_of_large_code(self.manifest)
        of_data = (
            f"data {name}: {text}"
            for name, listing in self.data.items()
            for text in listing.warnings
        )
        return (*self.manifest.warnings, *([large] if large else []), *of_data)


def path_in_code(job: Job, source: str) -> str | None:
    """Return the path of a data source relative to the code, or None if it is not in the code."""
    code = Path(job.code).resolve()
    path = Path(source).resolve()
    return path.relative_to(code).as_posix() if path != code and path.is_relative_to(code) else None


def read_shipment(
    job: Job, cache: Path | None, hosts: Iterable[Host] = (), *, allow_secrets: bool = False
) -> Shipment:
    """Read the code and the data sets on this machine.

    `hosts` are all hosts of the inventory. Private keys with which this machine logs in to them are
    never sent. `allow_secrets`: accept other private keys in the code. Raises ConfigError if code
    or data is missing, or if a file that must not be sent is in a data set or tracked by git.
    Raises Refused if code or data is empty, if git is not installed, or if the code holds a private
    key.
    """
    withheld_files = list_withheld_files(job, hosts)
    local_sources = {name: source for name, source in job.data.items() if source.from_host is None}
    sources = [
        *(source.path for source in local_sources.values()),
        *([job.setup_wheels] if job.setup_wheels else []),
    ]
    left_out = [*job.keep, *(path for source in sources if (path := path_in_code(job, source)))]
    manifest = read_tree(
        Path(job.code), exclude=left_out, cache=cache, withheld_files=withheld_files
    )
    if manifest.private_keys and not allow_secrets:
        path, line = manifest.private_keys[0]
        raise _secret_found_error(manifest, path, line, "a private key")
    data = {
        name: list_data_set(Path(source.path), withheld_files, job.places.get(f"data.{name}"))
        for name, source in local_sources.items()
    }
    by_rsync = frozenset(name for name, source in local_sources.items() if source.via == "rsync")
    return Shipment(job.name, manifest, CodeFiles(manifest), data, by_rsync=by_rsync)


def refuse_secret_values(shipment: Shipment, secret_by_variable: Mapping[str, Secret]) -> None:
    """Raise Refused if a file of the code holds the value of a secret."""
    leaks = find_secret_value(shipment.manifest, secret_by_variable)
    if leaks is not None:
        raise _secret_found_error(
            shipment.manifest,
            leaks.path,
            leaks.line,
            f"the value of the secret {leaks.secret_name}",
        )


def _secret_found_error(manifest: Manifest, path: str, line: int, finding: str) -> Refused:
    return Refused(
        f"{path} holds {finding}, and would be sent to every host",
        where=f"{manifest.root}/{path}:{line}",
        next=f"list it in {IGNORE_FILE}, or add --allow-secrets-in-code to send it nevertheless",
    )
