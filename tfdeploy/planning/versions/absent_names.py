"""Finds names in a program that the hosts' TensorFlow lacks, and what to do about each of them.

If every run of the program reaches such a name, the launch is refused. Otherwise the program fails
only if it reaches the name, so the plan gets a note.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.text.folding import fold_names
from tfdeploy.model.text.nexts import on_host
from tfdeploy.model.text.units import listed, version_numbers
from tfdeploy.planning.versions.tf_names_used import Use
from tfdeploy.runtime.old_names import removed_names

Refusal = tuple[str, str, str]  # (where it is used, what is missing, what to do instead)
_SHOWN = 4  # limits the number of names that one message lists
_COMPAT_NONE = "; or `compat: none`, if the program runs on TensorFlow 2 by itself"


class Missing(NamedTuple):
    """One use of a name that the hosts' TensorFlow lacks.

    `lacking`: the versions without the name, "TensorFlow 2" or "TensorFlow 2.16 and later".
    `instead`: what the user should do. `by_package`: True if that is to install a package.
    """

    use: Use
    lacking: str
    instead: str
    by_package: bool = False


def missing(uses: Iterable[Use], job: Job, hosts: Mapping[str, HostFacts]) -> Iterator[Missing]:
    """Yield the uses of names that do not exist on every host.

    A name exists if TensorFlow has it, or tfdeploy or an installed package supplies it.
    """
    for use in uses:
        instead, package = (
            removed_names.replacement(use.bare_name),
            removed_names.supplying_package(use.bare_name),
        )
        if (
            instead is None
            or (is_recent(use) and not _is_gone(use, hosts))
            or (package and _all_have(package, hosts))
        ):
            continue
        install = _install(package, job, hosts) if package and hosts else None
        yield Missing(
            use, _lacking(use), install or f"in its place: {instead}", install is not None
        )


def refusals(sure: Iterable[Missing], *, has_fallback: bool) -> tuple[Refusal, ...]:
    """Return one refusal for all missing names with the same remedy.

    `has_fallback`: the program has code for other TensorFlow versions.
    """
    groups: dict[tuple[str, str], list[Use]] = {}
    for each in sure:
        groups.setdefault((each.lacking, each.instead), []).append(each.use)
    return tuple(
        (
            uses[0].where,
            f"{_listed(_first_uses(uses))} not in {lacking}",
            f"{instead}{_COMPAT_NONE if has_fallback else ''}",
        )
        for (lacking, instead), uses in groups.items()
    )


def notes(unsure: Iterable[Missing]) -> Iterator[str]:
    """Yield notes on names that are missing, but that not every run of the program reaches.

    There is one note for each package to install, and one for all other names.
    """
    groups: dict[str, list[Use]] = {}
    for each in unsure:
        groups.setdefault(f": {each.instead}" if each.by_package else "", []).append(each.use)
    for install, uses in groups.items():
        yield (
            "not in this TensorFlow, and an error only where the program reaches it: "
            f"{_places(_first_uses(uses))}{install}"
        )


def supplied(uses: Collection[Use], hosts: Mapping[str, HostFacts]) -> Iterator[str]:
    """Yield notes on names that exist after all.

    They are old names of TensorFlow 0.x, and names that a package on all hosts supplies.
    """
    old = _first_uses(use for use in uses if removed_names.is_of_version0(use.bare_name))
    if old:
        yield f"names of TensorFlow 0.x get their later meaning: {_places(old)}"
    for package in dict.fromkeys(removed_names.supplying_package(use.bare_name) for use in uses):
        if package and _all_have(package, hosts):
            used = _first_uses(
                use for use in uses if removed_names.supplying_package(use.bare_name) == package
            )
            yield f"the package {package} supplies {_places(used)}"


def is_recent(use: Use) -> bool:
    """Return whether some version of TensorFlow 2 had the name."""
    return removed_names.removed_since(use.bare_name) is not None


def _first_uses(uses: Iterable[Use]) -> list[Use]:
    """Return the first use of each name.

    An import is left out if the program uses something of the imported module.
    """
    first: dict[str, Use] = {}
    for use in uses:
        first.setdefault(use.name, use)
    used = [f"{use.name}." for use in first.values() if not use.binds]
    return [
        use
        for use in first.values()
        if not (use.binds and any(name.startswith(f"{use.name}.") for name in used))
    ]


def _listed(uses: list[Use]) -> str:
    """Return the beginning of a sentence about these names.

    Examples: "tf.sub is", "tf.mul, tf.sub (train.py:4) and 3 more are".
    """
    first, *others = uses
    if not others:
        return f"tf.{first.name} is"
    names = [f"tf.{first.name}", *(f"tf.{use.name} ({use.where})" for use in others)]
    return f"{listed(names, _SHOWN)} are"


def _places(uses: list[Use]) -> str:
    """Return a text with these names and their places.

    Example: "tf.mul (train.py:3), tf.sub (train.py:4, imported only)". If there are more than
    _SHOWN names, the text says how many others there are.
    """
    places = [
        f"tf.{use.name} ({use.where}{', imported only' if use.binds else ''})" for use in uses
    ]
    return listed(places, _SHOWN)


def _all_have(package: str, hosts: Mapping[str, HostFacts]) -> bool:
    return bool(hosts) and all(each.modules.get(package) for each in hosts.values())


def _install(package: str, job: Job, hosts: Mapping[str, HostFacts]) -> str:
    """Return what the user must do to install the package on every host that lacks it."""
    if job.setup_requirements:
        return (
            f"write a line {package} into {posixpath.basename(job.setup_requirements)}, then "
            "`tfdeploy setup`"
        )
    lacking = [each for each in hosts.values() if not each.modules.get(package)]
    names = fold_names(each.host for each in lacking)
    install = on_host(names, lacking[0].python or "python3", "-m", "pip", "install", package)
    return f"{install}; or `setup: {{requirements: FILE}}` with a line {package} in FILE"


def _lacking(use: Use) -> str:
    since = removed_names.removed_since(use.bare_name)
    return "TensorFlow {}.{} and later".format(*since) if since else "TensorFlow 2"


def _is_gone(use: Use, hosts: Mapping[str, HostFacts]) -> bool:
    since = removed_names.removed_since(use.bare_name)
    return since is not None and any(
        version_numbers(each.tensorflow) >= since for each in hosts.values()
    )
