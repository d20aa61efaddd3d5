"""Test the output of a preflight (the checks of hosts before a launch). It lists only failed
checks, and hosts with the same problem are in one row.

The text contains no control characters that a terminal would obey.
"""

from __future__ import annotations

import io
from typing import Any

from tfdeploy.model.output.check import (
    Check,
    Level,
    LinkResult,
    PreflightResult,
    host_rows,
    link_rows,
)
from tfdeploy.ui.checks import show_check_problems
from tfdeploy.ui.terminal import Terminal


def link(source: str, to: str, port: int, **fields: Any) -> LinkResult:
    return LinkResult(from_host=source, to_host=to, port=port, **fields)


def failed(check: str, level: Level, detail: str, fix: str) -> Check:
    return Check(check=check, ok=False, level=level, detail=detail, fix=fix)


def checks_text(checked: PreflightResult, width: int | None = None, *, quiet: bool = False) -> str:
    out = io.StringIO()
    show_check_problems(
        Terminal(out, width, False), host_rows(checked), link_rows(checked), quiet=quiet
    )
    return out.getvalue()


def test_healthy_hosts_are_one_line() -> None:
    links = (link("n1", "n2", 1), link("n1", "n2", 2), link("n2", "n1", 1))
    checked = PreflightResult({"n1": (), "n2": ()}, links=links)
    assert (
        checks_text(checked) == "2 hosts, 2 links: nothing wrong\n"
        and checks_text(checked, quiet=True) == ""
    )
    assert checked.ok and checked.exit_code == 0


def test_hosts_with_same_problem_are_one_entry_with_their_names() -> None:
    def bad(host: str) -> Check:
        return failed(
            "python", "error", "no python9", f"write `python: PATH` of {host} in the inventory"
        )

    warned = failed("clock", "warning", "400 s behind", "timedatectl set-ntp true")
    checked = PreflightResult({"n1": (warned,), "n2": (bad("n2"),), "n3": (bad("n3"), warned)})
    assert checks_text(checked).splitlines() == [
        "n[2-3] python: no python9",
        "    fix: write `python: PATH` of n[2-3] in the inventory",
        "n[1,3] clock: 400 s behind",
        "    fix: timedatectl set-ntp true",
        "3 hosts, 0 links: 2 errors, 2 warnings",
    ]
    assert checked.exit_code == 1 and PreflightResult({"n1": (warned,)}).exit_code == 0
    assert PreflightResult({"n1": (warned,)}, unreached=frozenset({"n1"})).exit_code == 4


def test_same_failure_at_different_addresses_is_one_entry() -> None:
    checks = {
        f"n{n}": (
            failed(
                "ssh",
                "error",
                f"ml@192.0.2.{n}:22 refused the key",
                f"ssh-copy-id -i key.pub ml@192.0.2.{n}",
            ),
        )
        for n in range(1, 8)
    }
    assert checks_text(PreflightResult(checks)).splitlines() == [
        "n[1-7] ssh: refused the key",
        "    fix: ssh-copy-id -i key.pub ml@192.0.2.1; do the same for n[2-7]",
        "7 hosts, 0 links: 7 errors",
    ]
    checked_n1 = PreflightResult({"n1": checks["n1"]})
    assert checks_text(checked_n1).splitlines()[0] == "n1 ssh: ml@192.0.2.1:22 refused the key"


def test_fix_for_several_hosts_is_quoted_for_shell() -> None:
    checks = {
        name: (failed("clock", "warning", "ahead", f"tfdeploy exec --limit {name} -- date"),)
        for name in ("n1", "n2")
    }
    assert (
        "    fix: tfdeploy exec --limit 'n[1-2]' -- date"
        in checks_text(PreflightResult(checks)).splitlines()
    )


def test_text_of_host_is_sanitised_and_wrapped() -> None:
    evil = failed("shell", "warning", "prints \x1b]0;owned\x07 " + "word " * 60, "\x1b[2Jmend")
    text = checks_text(PreflightResult({"n1": (evil,)}), 60)
    assert "\x1b" not in text and "\x07" not in text and max(map(len, text.splitlines())) <= 60


def test_failed_connections_are_counted_by_pair_and_shown_with_ports() -> None:
    links = [
        link("n1", "n2", port, ok=False, why="no answer", fix="open it")
        for port in range(2222, 2230)
    ]
    text = checks_text(PreflightResult({"n1": (), "n2": ()}, (*links, link("n2", "n1", 2222))))
    assert text.splitlines() == [
        "n1 does not reach n2: no answer (ports 2222, 2223, 2224, 2225, ...)",
        "    fix: open it",
        "2 hosts, 2 links: 1 broken link",
    ]
