"""Says which of a program's names of TensorFlow the hosts' TensorFlow does not have, and what brings or replaces each.

A name that the program surely reaches is refused; any other fails where it is reached, and the plan has a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tfdeploy.model.facts import HostFacts
from tfdeploy.planning.program.tf_names_used import Use
from tfdeploy.runtime import replaced

Refusal = tuple[str, str, str]  # (where, what, in place of it)
_SHOWN = 4  # names in one sentence
_COPES = "; or `compat: none`, if the program runs on TensorFlow 2 by itself"


class Missing(NamedTuple):
    """`lacking`: "TensorFlow 2", or "TensorFlow 2.16 and later" for what was in it before."""

    use: Use
    lacking: str
    instead: str


def missing(uses: Iterable[Use], hosts: Mapping[str, HostFacts]) -> Iterator[Missing]:
    """The uses of what is neither there nor supplied nor brought by a package that every host has."""
    for use in uses:
        instead = replaced.in_place(plain(use))
        if instead is not None and not (is_recent(use) and not _is_gone(use, hosts)):
            yield Missing(use, _lacking(use), instead)


def refusals(sure: Iterable[Missing], *, copes: bool) -> tuple[Refusal, ...]:
    """One for all names with the same replacement. `copes`: the program has a way of its own for some names."""
    groups: dict[tuple[str, str], list[Use]] = {}
    for use, lacking, instead in _once(sure):
        groups.setdefault((lacking, instead), []).append(use)
    return tuple(
        (uses[0].where, f"{_listed(uses)} not in {lacking}", f"in its place: {instead}{_COPES if copes else ''}")
        for (lacking, instead), uses in groups.items()
    )


def notes(unsure: Iterable[Missing]) -> tuple[str, ...]:
    """One line: imports count where nothing uses the name that they bind."""
    found = [each.use for each in _once(unsure)]
    used = [use.name for use in found if not use.binds]
    left = [use for use in found if not (use.binds and any(f"{name}.".startswith(f"{use.name}.") for name in used))]
    if not left:
        return ()
    places = [f"tf.{use.name} ({use.where}{', imported only' if use.binds else ''})" for use in left]
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return (f"not in this TensorFlow, and an error only where the program reaches it: {', '.join(places[:_SHOWN])}{more}",)


def plain(use: Use) -> str:
    return use.name.removeprefix("compat.v1.")


def is_recent(use: Use) -> bool:
    """Whether the name went away within TensorFlow 2."""
    return plain(use).split(".")[0] in replaced.SINCE


def version(facts: HostFacts) -> tuple[int, int] | None:
    """Of TensorFlow: (2, 21); None where there is none, or its version is not made of numbers."""
    parts = (facts.tensorflow or "").split(".")[:2]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(part.isdigit() for part in parts) else None


def _once(uses: Iterable[Missing]) -> list[Missing]:
    return list({each.use.name: each for each in reversed(list(uses))}.values())[::-1]


def _listed(uses: list[Use]) -> str:
    """ "tf.sub is", or "tf.mul, tf.sub (train.py:4) and 3 more are"."""
    first, *others = uses
    if not others:
        return f"tf.{first.name} is"
    shown = [f"tf.{first.name}", *(f"tf.{use.name} ({use.where})" for use in others[: _SHOWN - 1])]
    more = f" and {len(uses) - _SHOWN} more" if len(uses) > _SHOWN else ""
    return f"{', '.join(shown)}{more} are"


def _lacking(use: Use) -> str:
    if not is_recent(use):
        return "TensorFlow 2"
    return "TensorFlow {}.{} and later".format(*replaced.SINCE[plain(use).split(".")[0]][0])


def _is_gone(use: Use, hosts: Mapping[str, HostFacts]) -> bool:
    since, _ = replaced.SINCE[plain(use).split(".")[0]]
    return any((version(each) or (0, 0)) >= since for each in hosts.values())
