"""Resolve names with this host's own resolver, as the tasks on this host would resolve them."""

from __future__ import annotations

import socket

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Any, Callable, Dict, Iterable, List, Optional, Union
from tfdeploy.agent.host.network.hosts_file import is_loopback
from tfdeploy.agent.host.parallel import start_calls

# Limits the time of `start_lookups` for all names together. A name server may not answer.
TIMEOUT_S = 3.0
RESOLVE_S = 10.0  # limits the time of `resolve` for all names together
_MOST_ADDRESSES = 16  # limits how many addresses are returned for one name


def start_lookups(names: Iterable[str]) -> Callable[[], Dict[str, List[str]]]:
    """Start to resolve the names on threads. Return a function that waits for the results and
    returns name -> sorted addresses.

    A name that does not exist has an empty list. A name for which there was no answer within
    TIMEOUT_S seconds is left out.
    """
    wait = _start_resolving(names, TIMEOUT_S)

    def wait_for_answers() -> Dict[str, List[str]]:
        answers: Dict[str, List[str]] = {}
        for name, answer in wait().items():
            if isinstance(answer, list):
                addresses = {str(row[4][0]).partition("%")[0] for row in answer}
                answers[name] = sorted(addresses)[:_MOST_ADDRESSES]
            elif getattr(answer, "errno", None) != socket.EAI_AGAIN:
                answers[name] = []
        return answers

    return wait_for_answers


def resolve(names: Iterable[str]) -> Dict[str, Union[List[Any], str]]:
    """Look up names or addresses. Return name -> its rows from getaddrinfo, or a text that says why
    there are no rows. Takes at most RESOLVE_S seconds."""
    names = list(names)
    answers: Dict[str, Union[List[Any], str]] = dict.fromkeys(names, "no answer")
    for name, answer in _start_resolving(names, RESOLVE_S)().items():
        is_found = isinstance(answer, list)
        answers[name] = (
            answer if is_found else str(getattr(answer, "strerror", None) or answer)[:200]
        )
    return answers


def first_loopback(rows: Union[List[Any], str]) -> Optional[str]:
    """Return the first loopback address in the rows of getaddrinfo, or None."""
    addresses = [str(row[4][0]) for row in rows] if isinstance(rows, list) else []
    return next(filter(is_loopback, addresses), None)


def _start_resolving(names: Iterable[str], timeout_s: float) -> Callable[[], Dict[str, Any]]:
    """Start to resolve the names. Return a function that waits for the results and returns name ->
    rows of getaddrinfo, or the error."""
    answers: Dict[str, Any] = {}

    def look_up(name: str) -> None:
        try:
            answers[name] = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answers[name] = error

    distinct = list(dict.fromkeys(names))
    for name in filter(peer_filter.is_address, distinct):
        look_up(name)
    wait = start_calls(look_up, [name for name in distinct if name not in answers], timeout_s)

    def wait_for_answers() -> Dict[str, Any]:
        wait()
        return dict(answers)

    return wait_for_answers
