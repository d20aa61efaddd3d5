"""Test that classes with the agent's decorator @record behave like dataclasses, in everything that
the agent uses.
"""

from __future__ import annotations

import subprocess
import typing
from pathlib import Path

import pytest

from support.agent.interpreter import AGENT_PYTHON
from tfdeploy.agent import wire
from tfdeploy.agent.record import NamedTuple, field, record, replace

ROOT = str(Path(wire.__file__).parents[2])


@record
class Inner:
    name: str


@record
class Outer:
    """A class with fields of every kind."""

    name: str
    count: int = 3
    found: str | None = None
    words: dict[str, str] = field(default_factory=dict)
    inner: list[Inner] = field(default_factory=list, metadata={"of": Inner})


def test_fields_by_place_and_by_name_and_their_defaults() -> None:
    one, other = Outer("a", 4, words={"b": "c"}), Outer("a")
    assert (one.name, one.count, one.found, one.words, one.inner) == ("a", 4, None, {"b": "c"}, [])
    assert (other.count, other.words) == (3, {})
    other.words["x"] = "y"
    assert Outer("a").words == {}
    assert one == Outer("a", 4, words={"b": "c"}) != other
    assert one != "a"
    assert repr(Inner("x")) == "Inner(name='x')"


def test_replace_makes_another() -> None:
    one = Outer("a")
    assert replace(one, count=5) == Outer("a", 5)
    assert one.count == 3


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "nme": "b"}])
def test_a_field_that_is_missing_or_unknown_is_an_error(wrong: dict[str, str]) -> None:
    with pytest.raises(TypeError):
        Outer(**wrong)  # type: ignore[arg-type]


def test_a_value_is_given_once() -> None:
    with pytest.raises(TypeError):
        Outer("a", name="b")  # type: ignore[misc]
    with pytest.raises(TypeError):
        Inner("a", "b")  # type: ignore[call-arg]


def test_the_wire_and_back_and_what_a_newer_version_adds() -> None:
    one = Outer("a", inner=[Inner("x"), Inner("y")])
    sent = wire.to_wire(one)
    assert sent == {
        "name": "a",
        "count": 3,
        "found": None,
        "words": {},
        "inner": [{"name": "x"}, {"name": "y"}],
    }
    assert wire.from_wire(Outer, {**sent, "newer": 1}) == one
    assert wire.from_wire(Outer, {"name": "a", "inner": None}).inner is None
    sent["inner"].clear()
    assert len(one.inner) == 2


@pytest.mark.parametrize("word", ["serve", "minder", "supervise"])
def test_no_process_of_the_agent_starts_with_dataclasses(word: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); import tfdeploy.agent.{word}; assert "
        "'inspect' not in sys.modules"
    )
    subprocess.run([AGENT_PYTHON, "-S", "-E", "-c", code], check=True)


@pytest.mark.parametrize(
    ("loads", "most"),
    [
        ("minder.minder host.network.guarded_ports", 56),
        ("supervise.supervisor host.descriptors", 21),
        ("serve.server", 11),
    ],
)
def test_a_process_that_protects_its_ports_starts_with_few_modules(loads: str, most: int) -> None:
    look = (
        "[each for name, each in sys.modules.items() if name.startswith('tfdeploy') and not "
        "hasattr(each, '__path__')]"
    )
    names = ", ".join(f"tfdeploy.agent.{each}" for each in loads.split())
    code = f"import sys; sys.path.insert(0, {ROOT!r}); import {names}; print(len({look}))"
    value_read = subprocess.run(
        [AGENT_PYTHON, "-S", "-E", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert int(value_read) <= most


def test_a_named_tuple_is_as_the_one_of_typing() -> None:
    class Real(typing.NamedTuple):
        """A record for this test: an address whose port has a default, and tags."""

        host: str
        port: int = 22
        tags: tuple[str, ...] = ()

        def url(self) -> str:
            return f"{self.host}:{self.port}"

        @property
        def is_usual(self) -> bool:
            return self.port == 22

    class Ours(NamedTuple):
        """A record for this test: an address whose port has a default, and tags."""

        host: str
        port: int = 22
        tags: tuple[str, ...] = ()

        def url(self) -> str:
            return f"{self.host}:{self.port}"

        @property
        def is_usual(self) -> bool:
            return self.port == 22

    one, other = Real("n1", 23), Ours("n1", 23)
    assert one == other and hash(one) == hash(other) and tuple(other) == ("n1", 23, ())
    assert other.url() == one.url() and Ours("n2").is_usual and not other.is_usual
    assert other._replace(port=22)._asdict() == {"host": "n1", "port": 22, "tags": ()}
    assert (Ours._fields, Ours._field_defaults, Ours.__doc__) == (
        Real._fields,
        Real._field_defaults,
        Real.__doc__,
    )
    assert repr(other) == repr(one).replace("Real", "Ours") and Ours.__module__ == Real.__module__
    with pytest.raises(TypeError):
        Ours()  # type: ignore[call-arg]
