"""Finds names in a program that the hosts' TensorFlow lacks, and what to do about each of them.

If every run of the program reaches such a name, the launch is refused. If only some runs reach the
name, the plan gets a note.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.job import Job
from tfdeploy.planning.versions.tf_names_used import NameUse
from tfdeploy.runtime.old_names import removed_names
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import command_on_host
from tfdeploy.text.units import list_first, version_numbers

# (where the program uses the name, what is missing, what the user should do instead)
Refusal = tuple[str, str, str]
_SHOWN = 4  # limits the number of names that one message lists
_COMPAT_NONE = "; or `compat: none`, if the program runs on TensorFlow 2 by itself"


class MissingName(NamedTuple):
    """One use of a name that the hosts' TensorFlow lacks.

    `lacking_versions`: the versions that lack the name, "TensorFlow 2" or "TensorFlow 2.16 and
    later". `instead`: what the user should do. `instead_is_package`: True if the user should
    install a package.
    """

    use: NameUse
    lacking_versions: str
    instead: str
    instead_is_package: bool = False


def find_missing_names(
    uses: Iterable[NameUse], job: Job, hosts: FactsByHost
) -> Iterator[MissingName]:
    """Yield the uses of names that do not exist on every host.

    A name exists on a host if TensorFlow has it, or if tfdeploy or an installed package supplies
    it.
    """
    for use in uses:
        instead = removed_names.replacement_hint(use.bare_name)
        package = removed_names.supplying_package(use.bare_name)
        since = removed_names.removed_since(use.bare_name)
        present = since and all(version_numbers(each.tensorflow) < since for each in hosts.values())
        if (
            instead is not None
            and not present
            and not (package and _all_hosts_have(package, hosts))
        ):
            install = _install_advice(package, job, hosts) if package and hosts else ""
            lacking = "TensorFlow {}.{} and later".format(*since) if since else "TensorFlow 2"
            yield MissingName(use, lacking, install or f"in its place: {instead}", bool(install))


def group_refusals(sure: Iterable[MissingName], *, has_fallback: bool) -> tuple[Refusal, ...]:
    """Return the refusals for missing names that every run reaches, one for each remedy.

    A remedy is what the user should do, such as installing a package. The refusal lists all names
    with this remedy. `has_fallback`: whether the program has code for other TensorFlow versions.
    """
    groups: defaultdict[tuple[str, str], list[NameUse]] = defaultdict(list)
    for use, lacking, instead, _ in sure:
        groups[lacking, instead].append(use)
    return tuple(
        (
            uses[0].where,
            f"{_names_text(_first_uses(uses))} not in {lacking}",
            f"{instead}{_COMPAT_NONE if has_fallback else ''}",
        )
        for (lacking, instead), uses in groups.items()
    )


def notes(unsure: Iterable[MissingName]) -> Iterator[str]:
    """Yield notes on missing names that only some runs of the program reach.

    There is one note for each package to install, and one note for all other names.
    """
    groups: defaultdict[str, list[NameUse]] = defaultdict(list)
    for use, _, instead, instead_is_package in unsure:
        groups[f": {instead}" if instead_is_package else ""].append(use)
    for install, uses in groups.items():
        yield (
            "names that the hosts' TensorFlow lacks (a run fails only if it reaches one of them): "
            f"{_names_with_places(_first_uses(uses))}{install}"
        )


def supplied_notes(uses: Collection[NameUse], hosts: FactsByHost) -> Iterator[str]:
    """Yield notes on names that TensorFlow lacks, but that the program can use on the hosts.

    They are old names of TensorFlow 0.x, which tfdeploy supplies, and names that a package on all
    hosts supplies.
    """
    old = _first_uses(use for use in uses if removed_names.is_of_version0(use.bare_name))
    if old:
        yield f"names of TensorFlow 0.x, which tfdeploy supplies: {_names_with_places(old)}"
    by_package: defaultdict[str | None, list[NameUse]] = defaultdict(list)
    for use in uses:
        by_package[removed_names.supplying_package(use.bare_name)].append(use)
    for package, used in by_package.items():
        if package and _all_hosts_have(package, hosts):
            yield f"the package {package} supplies {_names_with_places(_first_uses(used))}"


def is_recent(use: NameUse) -> bool:
    """Return whether some version of TensorFlow 2 had the name."""
    return removed_names.removed_since(use.bare_name) is not None


def _first_uses(uses: Iterable[NameUse]) -> list[NameUse]:
    """Return the first use of each name.

    The import of a module is left out if the program also uses a name from this module.
    """
    first: dict[str, NameUse] = {}
    for use in uses:
        first.setdefault(use.name, use)
    used = [use.name for use in first.values() if not use.binds]
    return [
        use
        for use in first.values()
        if not (use.binds and any(removed_names.is_within(name, use.name) for name in used))
    ]


def _names_text(uses: list[NameUse]) -> str:
    """Return the beginning of a sentence about these names.

    Examples: "tf.sub is", "tf.mul, tf.sub (train.py:4) and 3 more are".
    """
    first, *others = uses
    names = [f"tf.{first.name}", *(f"tf.{use.name} ({use.where})" for use in others)]
    return f"{list_first(names, _SHOWN)} {'are' if others else 'is'}"


def _names_with_places(uses: list[NameUse]) -> str:
    """Return a text with these names and their places.

    Example: "tf.mul (train.py:3), tf.sub (train.py:4, imported only)". If there are more than
    _SHOWN names, the text says how many others there are.
    """
    places = (
        f"tf.{use.name} ({use.where}{', imported only' if use.binds else ''})" for use in uses
    )
    return list_first([*places], _SHOWN)


def _all_hosts_have(package: str, hosts: FactsByHost) -> bool:
    return bool(hosts) and all(each.modules.get(package) for each in hosts.values())


def _install_advice(package: str, job: Job, hosts: FactsByHost) -> str:
    """Return what the user must do to install the package on every host that lacks it."""
    if job.setup_requirements:
        file = posixpath.basename(job.setup_requirements)
        return f"write a line {package} into {file}, then run `tfdeploy setup`"
    lacking = [each for each in hosts.values() if not each.modules.get(package)]
    names = fold_names(each.host for each in lacking)
    install = command_on_host(
        names, lacking[0].python or "python3", "-m", "pip", "install", package
    )
    return f"{install}; or `setup: {{requirements: FILE}}` with a line {package} in FILE"
