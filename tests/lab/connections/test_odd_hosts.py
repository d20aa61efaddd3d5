"""Test hosts with unusual login shells, banners, Python interpreters and home folders.

On such a host tfdeploy works, or its error says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from support.faults.lines import params, variations
from support.lab.commandline import Tfdeploy
from support.lab.hosts import host_changed_by_scripts, on_host, reboot, set_inventory
from support.lab.jobs import write_job
from support.lab.login_shell import find_refusal_reason, login_shell
from tfdeploy.lab import Lab
from tfdeploy.lab.isolated import UID

pytestmark = pytest.mark.isolated
SHELLS = {"csh": "/usr/bin/csh", "fish": "/usr/bin/fish"}


@pytest.fixture
def operator(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shaky)


ODD_SHELL = r"""#!/bin/sh
printf '\033]0;owned\007\033[31mwelcome [/bold]\033[0m\n'
printf 'no newline'
echo noise >&2
if test "$1" = -c; then shift; eval "$1"; fi
"""
WORDS = (
    "printf",
    "%s|",
    "two words",
    "qu'ote",
    'dou"ble',
    "back\\slash",
    "$HOME",
    "!x",
    "new\nline",
    "*",
    "%s",
    "emoji \U0001f600",
)


@pytest.mark.fault("13 csh, fish, one that prints, one with escapes")
def test_login_shells_of_all_kinds_are_no_obstacle(operator: Tfdeploy) -> None:
    lab = operator.lab
    hosts = dict(zip(("n1", "n2"), SHELLS.values(), strict=True))
    on_host(
        lab,
        "n3",
        "echo 'echo welcome; printf nonewline; echo oops >&2' > ~/.bashrc; cp ~/.bashrc ~/.profile",
    )
    put = f"cat > /usr/local/bin/oddsh <<'EOF'\n{ODD_SHELL}EOF\nchmod 755 /usr/local/bin/oddsh"
    with ExitStack() as stack:
        stack.enter_context(host_changed_by_scripts(lab, "n4", put, "rm /usr/local/bin/oddsh"))
        hosts["n4"] = "/usr/local/bin/oddsh"
        for host, shell in hosts.items():
            if on_host(lab, host, f"test -x {shell} && echo there", check=False):
                stack.enter_context(login_shell(lab, host, shell))
        rows = operator.json("exec", "--", *WORDS)["hosts"]
        wanted = "|".join(WORDS[2:]) + "|"
        assert {row["host"]: row["stdout"].endswith(wanted) for row in rows} == dict.fromkeys(
            lab.hosts, True
        ), rows
        assert [row["stdout"] for row in rows[:2]] == [wanted, wanted]
        one = operator.json(
            "exec", "--", "for i in 1 2; do echo \"$i!\" '$i'; done; exit 3", exit_code=1
        )["hosts"]
        assert {
            row["host"]: row["stdout"].endswith("1! $i\n2! $i\n") for row in one
        } == dict.fromkeys(lab.hosts, True), one
        (operator.cwd / "some.txt").write_text("data\n")
        write_job(operator, "shells", "quick.py", "--steps=3", data={"d": "some.txt"})
        assert operator.json("sync")["ok"]
        operator.run("launch", "--wait", exit_code=0)
        shown = operator.run("exec", "--", "true", exit_code=0)
        assert "\x1b" not in shown.stdout + shown.stderr
    on_host(lab, "n3", "rm ~/.bashrc ~/.profile")


@pytest.mark.fault("13 /bin/false, nologin, one that exits at once")
@pytest.mark.parametrize(
    "shell", variations(["/bin/false", "/usr/sbin/nologin", "/usr/local/bin/leaves"])
)
def test_a_login_shell_that_runs_nothing_is_named(operator: Tfdeploy, shell: str) -> None:
    lab = operator.lab
    put = (
        "printf '#!/bin/sh\\necho \"This account is closed.\"\\n' > /usr/local/bin/leaves; chmod "
        "755 /usr/local/bin/leaves"
    )
    write_job(operator, "closed", "quick.py")
    with (
        host_changed_by_scripts(lab, "n2", put, "rm /usr/local/bin/leaves"),
        login_shell(lab, "n2", shell),
    ):
        answer = operator.json("sync", exit_code=1)
        rows = {row["host"]: row for row in answer["hosts"]}
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, False, True, True]
        assert "login shell ended" in rows["n2"]["error"]
        stderr = operator.run("sync", exit_code=1).stderr
        assert "login shell" in stderr and "next: " in stderr


@pytest.mark.fault("13 a banner with escapes")
def test_a_banner_with_escapes_is_noise(operator: Tfdeploy) -> None:
    on_host(
        operator.lab,
        "n1",
        r"printf '\033]0;owned\007\033[2J=tfdeploy-agent=\nwelcome\n' > /etc/ssh/banner",
        root=True,
    )
    reboot(operator.lab, "n1", sshd_lines="Banner /etc/ssh/banner")
    try:
        write_job(operator, "banner", "quick.py", "--steps=2")
        done = operator.run("exec", "--", "echo", "fine", exit_code=0)
        assert "\x1b" not in done.stdout + done.stderr and "owned" not in done.stdout + done.stderr
        sync = operator.run("sync", exit_code=0)
        assert "\x1b" not in sync.stderr
        set_inventory(operator, defaults={"user": "nobody-here"})
        assert "\x1b" not in find_refusal_reason(operator)
    finally:
        reboot(operator.lab, "n1")


# --- Python

BARE = """mkdir /opt/bare && for each in /usr/bin/* /usr/local/bin/*; do
case $each in *python*) ;; *) ln -s $each /opt/bare/ 2>/dev/null;; esac; done; true"""
OLD = r"""cat > /opt/bare/python3 <<'EOF'
#!/bin/sh
test "$1" = -V && exec echo Python 3.6.9
while test "$1" != -c; do shift; done
exec /usr/bin/python3 -S -E -c "import sys; sys.version_info = (3, 6, 9); $2"
EOF
chmod 755 /opt/bare/python3"""


@pytest.mark.fault("14 no Python, an old one, one elsewhere")
def test_a_host_without_python_or_with_an_old_one_or_with_one_elsewhere(operator: Tfdeploy) -> None:
    lab = operator.lab
    write_job(operator, "pythons", "quick.py", "--steps=2")
    for host in ("n2", "n3", "n4"):
        on_host(lab, host, BARE, root=True)
        reboot(lab, host, sshd_lines="SetEnv PATH=/opt/bare")
    on_host(lab, "n3", OLD, root=True)
    elsewhere = on_host(lab, "n4", "readlink -f $(command -v python3)")
    set_inventory(operator, defaults={"python": None}, hosts={"n4": {"python": elsewhere}})
    try:
        rows = {row["host"]: row for row in operator.json("sync", exit_code=3)["hosts"]}
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [
            True,
            False,
            False,
            True,
        ], rows
        assert "no Python" in rows["n2"]["error"]
        assert "older than 3.8" in rows["n3"]["error"] and "3.6" in rows["n3"]["error"]
        stderr = operator.run("sync", exit_code=3).stderr
        assert "`python:`" in stderr
        assert operator.json("exec", "--", "true")["ok"]
        operator.run("launch", exit_code=3)
    finally:
        for host in ("n2", "n3", "n4"):
            on_host(lab, host, "rm -rf /opt/bare", root=True)
            reboot(lab, host)


# --- disks


HOMES = {
    "15 home read-only": (
        "mount --bind /home/lab /home/lab && mount -o remount,bind,ro /home/lab",
        "Read-only file system",
    ),
    "15 home full": (
        f"mount -t tmpfs -o size=64k,uid={UID},mode=700 none /home/lab",
        "No space left on device",
    ),
    "15 home out of inodes": (
        f"mount -t tmpfs -o nr_inodes=8,uid={UID},mode=700 none /home/lab",
        "No space left on device",
    ),
}


@pytest.mark.parametrize(("mount", "args"), params(HOMES, core=["15 home full"]))
def test_a_home_that_cannot_be_written_to_is_named(
    operator: Tfdeploy, mount: str, args: str
) -> None:
    write_job(operator, "disks", "quick.py")
    on_host(operator.lab, "n2", "rm -rf ~/tfdeploy")
    with host_changed_by_scripts(operator.lab, "n2", mount, "umount /home/lab"):
        answer = operator.json("sync", exit_code=3)
        rows = {row["host"]: row for row in answer["hosts"]}
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [
            True,
            False,
            True,
            True,
        ], rows
        assert "/home/lab/tfdeploy" in rows["n2"]["error"] and args in rows["n2"]["error"]
        stderr = operator.run("sync", exit_code=3).stderr
        assert re.search(r"n2.*/home/lab/tfdeploy", stderr) and "`workdir:`" in stderr
        assert operator.json("exec", "--limit", "n2", "--", "true")["ok"]
