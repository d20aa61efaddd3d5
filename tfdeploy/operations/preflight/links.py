"""Every host to every host: all listen on ports of their own, and each knocks at all others. No run is needed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.model.answers.links import CHECK_KNOCK, CHECK_LISTEN, CHECK_MEASURE, Listening, Measured
from tfdeploy.model.answers.verb import Nothing
from tfdeploy.model.check import Link
from tfdeploy.model.inventory import Host
from tfdeploy.operations.outcomes import split
from tfdeploy.planning.preflight.links import End, failed, rounds, with_slow
from tfdeploy.transport.protocols import Fleet, Session, Stream

LISTEN_S = 30.0  # until a host listens
KNOCK_S = 120.0
MEASURE_S = 90.0
STAY_S, STAY_PAIR_S = 180.0, 25.0  # how long hosts listen by themselves; with --deep so much longer for each round


@dataclass(frozen=True)
class Reached:
    """`errors`: hosts that could not be asked. `taken`: host -> port -> why it could not listen there."""

    links: tuple[Link, ...] = ()
    errors: dict[str, TfdeployError] = field(default_factory=dict)
    taken: dict[str, dict[int, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Open:
    """A host that listens. `token`: what it answers."""

    address: str
    ports: tuple[int, ...]
    token: str
    taken: dict[int, str]


def try_links(fleet: Fleet, hosts: tuple[Host, ...], ends: Mapping[str, End], *, deep: bool) -> Reached:
    """From each of `hosts` to each other one of `ends`. A host that cannot listen or knock is an error of its own, and the
    others are served."""
    wanted = tuple(host for host in hosts if host.name in ends)
    if len(hosts) < 2 or not wanted:
        return Reached()
    key = secrets.token_hex(16)
    with _listening(fleet, wanted, ends, key, STAY_S + (STAY_PAIR_S * len(wanted) if deep else 0)) as (listening, errors):
        named = {host.name: host for host in hosts}
        knocked, more = split(_knock(fleet, hosts, listening, named))
        links = tuple(link for found in knocked.values() for link in found)
        if deep:
            links = _measured(fleet, named, listening, links, key)
    taken = {name: each.taken for name, each in listening.items() if each.taken}
    return Reached(links, {**errors, **more}, taken)


@contextmanager
def _listening(
    fleet: Fleet, hosts: tuple[Host, ...], ends: Mapping[str, End], key: str, stay_s: float
) -> Iterator[tuple[dict[str, _Open], dict[str, TfdeployError]]]:
    """(the hosts that listen, the errors of those that cannot). All hang up at the end."""
    streams: list[Stream[Listening, Nothing]] = []

    def listen(session: Session) -> _Open:
        end, token = ends[session.host.name], secrets.token_hex(16)
        args = {"ports": list(end.ports), "token": token, "key": key, "seconds": stay_s}
        stream = session.agent().stream(CHECK_LISTEN, args, silence_s=LISTEN_S)
        streams.append(stream)
        said = next((item for item, _ in stream), None)
        if said is None or not set(said.ports) <= set(end.ports):
            raise BadAnswer("it listens on ports that nobody asked for", where=session.host.name)
        taken = {port: said.taken.get(str(port), "") for port in end.ports if port not in said.ports}
        return _Open(end.address, tuple(said.ports), token, taken)

    try:
        yield split(fleet.each(hosts, listen))
    finally:
        for stream in streams:
            stream.close()


def _knock(
    fleet: Fleet, hosts: tuple[Host, ...], listening: Mapping[str, _Open], named: Mapping[str, Host]
) -> dict[str, list[Link] | TfdeployError]:
    names = list(listening)
    answering = {each.token: name for name, each in listening.items()}

    def knock(session: Session) -> list[Link]:
        own = session.host.name
        at = names.index(own) if own in listening else 0
        others = [name for name in (*names[at + 1 :], *names[:at]) if name != own]  # not all at one host first
        links = [Link(own, name, port) for name in others for port in listening[name].ports]
        asked = [[listening[link.to_host].address, link.port, listening[link.to_host].token] for link in links]
        said = session.agent().call(CHECK_KNOCK, {"links": asked}, timeout_s=KNOCK_S)
        if said.asked != len(links) or any(place >= len(links) for place, _, _ in said.failed):
            raise BadAnswer("it answers for links that nobody asked for", where=own)
        for place, why, detail in said.failed:
            to = links[place].to_host
            told = answering.get(detail, "") if why == "other" else detail
            links[place] = failed(links[place], why, told, named[to], listening[to].address)
        return links

    return fleet.each(hosts, knock, waits=True)


def _measured(
    fleet: Fleet, named: Mapping[str, Host], listening: Mapping[str, _Open], links: tuple[Link, ...], key: str
) -> tuple[Link, ...]:
    """The links with their latency and bandwidth: round after round, in each of which a host is in one pair."""
    good = {(link.from_host, link.to_host): link.port for link in reversed(links) if link.ok}
    figures: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    for pairs in rounds(sorted({link.from_host for link in links} & set(listening))):
        asked = dict(pair if pair in good else pair[::-1] for pair in pairs if pair in good or pair[::-1] in good)

        def measure(session: Session, asked: Mapping[str, str] = asked) -> Measured:
            to = asked[session.host.name]
            link = [listening[to].address, good[session.host.name, to], listening[to].token]
            return session.agent().call(CHECK_MEASURE, {"link": link, "key": key}, timeout_s=MEASURE_S)

        found, _ = split(fleet.each(tuple(named[name] for name in asked), measure, waits=True))
        for name, said in found.items():
            figures[name, asked[name]] = (said.ms, said.to_mbit_s)
            figures[asked[name], name] = (said.ms, said.from_mbit_s)
    filled = []
    for link in links:
        ms, mbit_s = figures.get((link.from_host, link.to_host), (None, None)) if link.ok else (None, None)
        filled.append(replace(link, ms=ms, mbit_s=mbit_s))
    return with_slow(filled)
