"""Hosts that cannot be reached, or only oddly: one clear cause for each, and what the others have to say is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from commandline import Tfdeploy
from faultlines import params
from hostside import changed_host, on_host, reboot, set_inventory
from jobs import write_job

from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
CONNECT_S = 10.0
LAB_S = 30.0  # of starting an interpreter on a busy machine
SHELLS = {"csh": "/usr/bin/csh", "fish": "/usr/bin/fish"}
SET_SHELL = "sed -i 's,^\\(lab:.*:\\)[^:]*$,\\1{shell},' /etc/passwd"


@pytest.fixture(scope="module")
def shaky(new_lab: Callable[..., Lab]) -> Lab:
    """Four hosts of this module's own: its tests break them."""
    return new_lab("isolated", 4)


@pytest.fixture
def operator(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shaky)


@pytest.fixture
def known_hosts(operator: Tfdeploy) -> Path:
    """The operator's own known_hosts: a copy of the lab's."""
    path = operator.home / "known_hosts"
    shutil.copy(operator.lab.known_hosts, path)
    set_inventory(operator, defaults={"known_hosts": str(path)})
    return path


def fingerprint(lab: Lab, host: str) -> str:
    words = ["ssh-keygen", "-lf", str(lab.root / "hosts" / host / "host_key")]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.split()[1]


def forget(known_hosts: Path, *numbers: int) -> None:
    """Takes these hosts' lines (1 is n1) out of the file."""
    lines = known_hosts.read_text().splitlines(keepends=True)
    known_hosts.write_text("".join(line for number, line in enumerate(lines, 1) if number not in numbers))


# --- host keys --------------------------------------------------------------------------------------


@pytest.mark.fault("9 an unknown host key")
def test_an_unknown_key_is_refused_with_its_fingerprint_and_trust_records_it(operator: Tfdeploy, known_hosts: Path) -> None:
    forget(known_hosts, 2)
    rows = {row["host"]: row for row in operator.json("exec", "--", "true", exit_code=4)["hosts"]}
    assert [rows[host]["exit_code"] for host in ("n1", "n2", "n3", "n4")] == [0, None, 0, 0]
    print_2 = fingerprint(operator.lab, "n2")
    assert print_2 in rows["n2"]["error"]
    said = operator.run("exec", "--", "true", exit_code=4).stderr
    assert print_2 in said and "tfdeploy trust --limit n2" in said

    before = known_hosts.read_text()
    refused = operator.run("trust", exit_code=2)
    assert print_2 in refused.stderr and "no terminal" in refused.stderr
    assert known_hosts.read_text() == before

    answer = operator.json("trust", "--yes")
    assert {row["host"]: row["state"] for row in answer["hosts"]} == {
        "n1": "known",
        "n2": "recorded",
        "n3": "known",
        "n4": "known",
    }
    assert operator.json("exec", "--", "true")["ok"]
    operator.run("sync", "--json", exit_code=2)  # no job file: rsync's own check of the key is shown elsewhere


def answered(operator: Tfdeploy, answer: bytes, *words: str) -> tuple[int, str]:
    """tfdeploy WORDS on a terminal, where `answer` is typed: (exit code, all that it showed)."""
    master, slave = pty.openpty()
    asking = subprocess.Popen(
        operator.argv(*words), env=operator.env, cwd=operator.cwd, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    os.write(master, answer)
    shown = b""
    try:
        while block := os.read(master, 4096):
            shown += block
    except OSError:  # the other side has closed it
        pass
    finally:
        os.close(master)
        code = asking.wait(30)
    return code, shown.decode(errors="replace")


def test_trust_asks_on_a_terminal(operator: Tfdeploy, known_hosts: Path) -> None:
    forget(known_hosts, 1, 4)
    before = known_hosts.read_text()
    code, shown = answered(operator, b"no\n", "trust")
    assert code == 4 and "2 left out" in shown and fingerprint(operator.lab, "n4") in shown
    assert known_hosts.read_text() == before
    code, shown = answered(operator, b"yes\n", "trust")
    assert code == 0 and "2 recorded, 0 left out" in shown
    assert operator.json("exec", "--", "true")["ok"]


def test_trust_records_exactly_the_listed_fingerprints(operator: Tfdeploy, known_hosts: Path) -> None:
    forget(known_hosts, 1, 2, 3)
    listed = operator.home / "prints"
    listed.write_text(f"# from the console\nn1 {fingerprint(operator.lab, 'n1')}\nn2 {fingerprint(operator.lab, 'n3')}\n")
    done = operator.run("trust", "--fingerprints", str(listed), exit_code=4)
    assert "[n2] its key is not the one in" in done.stderr and "1 recorded, 2 left out" in done.stderr
    rows = {row["host"]: row["exit_code"] for row in operator.json("exec", "--", "true", exit_code=4)["hosts"]}
    assert rows == {"n1": 0, "n2": None, "n3": None, "n4": 0}
    operator.run("trust", "--fingerprints", "/nowhere", exit_code=2)


@pytest.mark.fault("9 a changed host key, whatever flag")
def test_a_changed_key_is_refused_with_both_fingerprints_and_no_flag_silences_it(operator: Tfdeploy, known_hosts: Path) -> None:
    lines = known_hosts.read_text().splitlines()
    another = lines[2].split()[1:]
    lines[1] = " ".join([lines[1].split()[0], *another])
    known_hosts.write_text("\n".join(lines) + "\n")
    before = known_hosts.read_text()
    old, new = fingerprint(operator.lab, "n3"), fingerprint(operator.lab, "n2")
    said = operator.run("exec", "--", "true", exit_code=4).stderr
    assert old in said and new in said and "has changed" in said and f"{known_hosts}:2" in said
    assert "ssh-keygen" in said
    trust = operator.run("trust", "--yes", exit_code=4)
    assert "changed" in trust.stderr and new in trust.stderr
    assert known_hosts.read_text() == before
    operator.run("exec", "--yes", "--limit", "n2", "--", "true", exit_code=4)


# --- hosts that do not answer ------------------------------------------------------------------------


@pytest.fixture
def silent_port(shaky: Lab) -> Iterator[int]:
    """A port of n2 that accepts connections and never speaks."""
    code = "import socket, time; s = socket.create_server(('', 2299)); print('up', flush=True); time.sleep(600)"
    with subprocess.Popen(shaky.on("n2", ["python3", "-c", code]), stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == b"up\n"
        yield 2299
        on_host(shaky, "n2", "kill $(grep -l 2299 /proc/[0-9]*/cmdline | cut -d/ -f3 | grep -vx $$)", check=False)
        listener.kill()


@pytest.mark.fault("10 one accepts and is silent, one drops packets, one refuses")
def test_silent_hosts_are_unreachable_within_the_connect_timeout_and_the_others_are_shown(
    operator: Tfdeploy, silent_port: int
) -> None:
    set_inventory(operator, hosts={"n2": {"port": silent_port}, "n4": {"port": 2298}})
    operator.lab.cut("n3")
    try:
        began = time.monotonic()
        answer = operator.json("exec", "--", "echo", "here", exit_code=4)
        took = time.monotonic() - began
    finally:
        operator.lab.heal("n3")
    rows = {row["host"]: row for row in answer["hosts"]}
    assert (rows["n1"]["exit_code"], rows["n1"]["stdout"]) == (0, "here\n")
    assert took < CONNECT_S + LAB_S
    assert "accepts connections but says nothing within 10 s" in rows["n2"]["error"]
    assert "does not answer within 10 s" in rows["n3"]["error"]
    assert "refuses connections" in rows["n4"]["error"]


@pytest.mark.fault("10 a launch with a host that is cut off")
def test_a_launch_with_a_host_that_does_not_answer_leaves_nothing(operator: Tfdeploy) -> None:
    write_job(operator, "shaky-launch", "quick.py", "--steps=1000")
    operator.lab.cut("n3")
    try:
        done = operator.run("launch", "--name", "shaky-launch-1", exit_code=4)
    finally:
        operator.lab.heal("n3")
    assert "n3" in done.stderr and "does not answer within 10 s" in done.stderr
    assert done.stdout == ""
    for host in operator.lab.hosts:
        assert operator.marked(host, "shaky-launch-1") == []


# --- limits of sshd ----------------------------------------------------------------------------------


@pytest.mark.fault("12 MaxSessions 1 and MaxStartups 1:60:3, eight operators at once")
def test_sshds_that_let_few_in_at_once_are_entered_by_all(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> None:
    operators = [tfdeploy(shaky) for _ in range(8)]
    for host in ("n1", "n2"):
        reboot(shaky, host, sshd_lines="MaxSessions 1\nMaxStartups 1:60:3")
    try:
        asking = [operator.start("exec", "--json", "--", "echo", "in") for operator in operators]
        for process in asking:
            said, _ = process.communicate(timeout=60)
            assert process.returncode == 0, said
        write_job(operators[0], "few", "quick.py", "--steps=2")
        (operators[0].cwd / "large").write_bytes(bytes(6_000_000))  # by rsync, over a connection of its own
        operators[0].run("launch", "--wait", exit_code=0)
    finally:
        for host in ("n1", "n2"):
            reboot(shaky, host)


# --- hosts that lie ----------------------------------------------------------------------------------

BEGINS = "echo =tfdeploy-have=; echo =tfdeploy-agent=; "
LIARS = {
    "57 a gigabyte of zeros instead of an agent": "head -c 1073741824 /dev/zero",
    "57 our greeting, then a gigabyte of noise": BEGINS + "head -c 1073741824 /dev/urandom",
    "57 a frame that says it is 4 GB long": BEGINS + "head -c 8 /dev/zero | tr '\\000' '\\377'; cat",
    "57 an endless line of escapes": r"while printf '\033]0;owned\007\033[31m'; do :; done",
}
LIES = """cat > /usr/local/bin/liar <<'EOF'
#!/bin/sh
{lie}
EOF
chmod 755 /usr/local/bin/liar"""
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
MOST_KIB = 200 * 1024


@pytest.mark.parametrize("lie", [pytest.param(lie, id=name, marks=pytest.mark.fault(name)) for name, lie in LIARS.items()])
def test_a_host_that_answers_with_garbage_is_named_and_costs_little(operator: Tfdeploy, lie: str) -> None:
    write_job(operator, "lied", "quick.py")
    peak = operator.home / "peak"
    put = LIES.format(lie=lie)
    with changed_host(operator.lab, "n3", put, "rm /usr/local/bin/liar"), login_shell(operator.lab, "n3", "/usr/local/bin/liar"):
        words = ["/usr/bin/env", "python3", "-c", PEAK, str(peak), *operator.argv("sync", "--json")]
        done = subprocess.run(words, env=operator.env, cwd=operator.cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 4), done.stdout + done.stderr
    rows = {row["host"]: row for row in json.loads(done.stdout)["hosts"]}
    assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, True, False, True], rows
    assert rows["n3"]["error"] and len(rows["n3"]["error"]) < 2000 and "\x1b" not in done.stdout + done.stderr
    assert int(peak.read_text()) < MOST_KIB


# --- getting in --------------------------------------------------------------------------------------


def make_key(path: Path, *words: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-f", str(path), *words], check=True, timeout=30)
    return path


def reason(operator: Tfdeploy, *, code: int = 4) -> str:
    """Why n1 cannot be entered; at once, and without a question."""
    began = time.monotonic()
    done = operator.run("exec", "--limit", "n1", "--", "true", exit_code=code)
    assert time.monotonic() - began < LAB_S
    assert "assword" not in done.stderr and "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.fault("11 a wrong user")
def test_a_user_that_is_not_there(operator: Tfdeploy) -> None:
    set_inventory(operator, defaults={"user": "nobody-here"})
    said = reason(operator)
    assert "nobody-here" in said and "`user:`" in said


@pytest.mark.fault("11 a key that is refused")
def test_a_key_that_the_host_does_not_take(operator: Tfdeploy) -> None:
    key = make_key(operator.home / "other", "-N", "")
    set_inventory(operator, defaults={"identity_file": str(key)})
    said = reason(operator)
    assert "refused the key offered for user lab" in said and str(key) in said and "ssh-copy-id" in said


@pytest.mark.fault("11 an encrypted key without an agent")
def test_an_encrypted_key_without_an_agent(operator: Tfdeploy) -> None:
    key = operator.home / "locked"
    shutil.copy(operator.lab.root / "id_ed25519", key)
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(key)], check=True, timeout=30)
    set_inventory(operator, defaults={"identity_file": str(key)})
    said = reason(operator)
    assert "is encrypted" in said and f"ssh-add {key}" in said


@pytest.mark.fault("11 a key file missing, public, nonsense")
def test_a_key_file_that_is_missing_or_public_or_nonsense(operator: Tfdeploy) -> None:
    missing = operator.home / "missing"
    set_inventory(operator, defaults={"identity_file": str(missing)})
    assert f"{missing} cannot be read: No such file" in reason(operator)
    public = make_key(operator.home / "pair", "-N", "").with_suffix(".pub")
    set_inventory(operator, defaults={"identity_file": str(public)})
    assert "is a public key" in reason(operator)
    nonsense = operator.home / "nonsense"
    nonsense.write_text("what is this\n")
    set_inventory(operator, defaults={"identity_file": str(nonsense)})
    assert "is not a private key" in reason(operator)


@pytest.fixture
def full_agent(operator: Tfdeploy) -> Iterator[Path]:
    """An ssh-agent that holds ten keys that no host takes, and the lab's key last."""
    socket = Path(operator.home, "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        deadline = time.monotonic() + 20
        while not socket.exists():
            assert time.monotonic() < deadline and agent.poll() is None
            time.sleep(0.02)
        keys = [make_key(operator.home / f"key-{number}", "-N", "") for number in range(10)]
        shutil.copy(operator.lab.root / "id_ed25519", operator.home / "right")
        (operator.home / "right").chmod(0o600)
        environment = {**operator.env, "SSH_AUTH_SOCK": str(socket)}
        for key in [*keys, operator.home / "right"]:
            subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, timeout=30, stderr=subprocess.DEVNULL)
        yield socket
        agent.terminate()


@pytest.mark.fault("11 too many keys in the agent")
def test_too_many_keys_in_the_agent(operator: Tfdeploy, full_agent: Path) -> None:
    operator.env["SSH_AUTH_SOCK"] = str(full_agent)
    set_inventory(operator, defaults={"identity_file": None})
    said = reason(operator)
    assert "refused the" in said and "keys offered" in said and "`identity_file:`" in said
    key = operator.home / "locked"
    shutil.copy(operator.lab.root / "id_ed25519", key)
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(key)], check=True, timeout=30)
    set_inventory(operator, defaults={"identity_file": str(key)})
    assert operator.json("exec", "--", "true")["ok"]  # the agent holds that one: the eleventh is the first offered


# --- login shells ------------------------------------------------------------------------------------


def login_shell(lab: Lab, host: str, shell: str) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(changed_host(lab, host, SET_SHELL.format(shell=shell), SET_SHELL.format(shell="/bin/bash")))
    return stack


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
    on_host(lab, "n3", "echo 'echo welcome; printf nonewline; echo oops >&2' > ~/.bashrc; cp ~/.bashrc ~/.profile")
    put = f"cat > /usr/local/bin/oddsh <<'EOF'\n{ODD_SHELL}EOF\nchmod 755 /usr/local/bin/oddsh"
    with ExitStack() as stack:
        stack.enter_context(changed_host(lab, "n4", put, "rm /usr/local/bin/oddsh"))
        hosts["n4"] = "/usr/local/bin/oddsh"
        for host, shell in hosts.items():
            if on_host(lab, host, f"test -x {shell} && echo there", check=False):
                stack.enter_context(login_shell(lab, host, shell))
        rows = operator.json("exec", "--", *WORDS)["hosts"]
        wanted = "|".join(WORDS[2:]) + "|"
        assert {row["host"]: row["stdout"].endswith(wanted) for row in rows} == dict.fromkeys(lab.hosts, True), rows
        assert [row["stdout"] for row in rows[:2]] == [wanted, wanted]
        one = operator.json("exec", "--", "for i in 1 2; do echo \"$i!\" '$i'; done; exit 3", exit_code=1)["hosts"]
        assert {row["host"]: row["stdout"].endswith("1! $i\n2! $i\n") for row in one} == dict.fromkeys(lab.hosts, True), one
        (operator.cwd / "some.txt").write_text("data\n")
        write_job(operator, "shells", "quick.py", "--steps=3", data={"d": "some.txt"})
        assert operator.json("sync")["ok"]
        operator.run("launch", "--wait", exit_code=0)
        shown = operator.run("exec", "--", "true", exit_code=0)
        assert "\x1b" not in shown.stdout + shown.stderr
    on_host(lab, "n3", "rm ~/.bashrc ~/.profile")


@pytest.mark.fault("13 /bin/false, nologin, one that exits at once")
@pytest.mark.parametrize("shell", ["/bin/false", "/usr/sbin/nologin", "/usr/local/bin/leaves"])
def test_a_login_shell_that_runs_nothing_is_named(operator: Tfdeploy, shell: str) -> None:
    lab = operator.lab
    put = "printf '#!/bin/sh\\necho \"This account is closed.\"\\n' > /usr/local/bin/leaves; chmod 755 /usr/local/bin/leaves"
    write_job(operator, "closed", "quick.py")
    with changed_host(lab, "n2", put, "rm /usr/local/bin/leaves"), login_shell(lab, "n2", shell):
        answer = operator.json("sync", exit_code=1)
        rows = {row["host"]: row for row in answer["hosts"]}
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, False, True, True]
        assert "login shell ended" in rows["n2"]["error"]
        said = operator.run("sync", exit_code=1).stderr
        assert "login shell" in said and "next: " in said


@pytest.mark.fault("13 a banner with escapes")
def test_a_banner_with_escapes_is_noise(operator: Tfdeploy) -> None:
    on_host(operator.lab, "n1", r"printf '\033]0;owned\007\033[2J=tfdeploy-agent=\nwelcome\n' > /etc/ssh/banner", root=True)
    reboot(operator.lab, "n1", sshd_lines="Banner /etc/ssh/banner")
    try:
        write_job(operator, "banner", "quick.py", "--steps=2")
        done = operator.run("exec", "--", "echo", "fine", exit_code=0)
        assert "\x1b" not in done.stdout + done.stderr and "owned" not in done.stdout + done.stderr
        sync = operator.run("sync", exit_code=0)
        assert "\x1b" not in sync.stderr
        set_inventory(operator, defaults={"user": "nobody-here"})
        assert "\x1b" not in reason(operator)
    finally:
        reboot(operator.lab, "n1")


# --- Python ------------------------------------------------------------------------------------------

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
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, False, False, True], rows
        assert "no Python" in rows["n2"]["error"]
        assert "older than 3.8" in rows["n3"]["error"] and "3.6" in rows["n3"]["error"]
        said = operator.run("sync", exit_code=3).stderr
        assert "`python:`" in said
        assert operator.json("exec", "--", "true")["ok"]
        operator.run("launch", exit_code=3)
    finally:
        for host in ("n2", "n3", "n4"):
            on_host(lab, host, "rm -rf /opt/bare", root=True)
            reboot(lab, host)


# --- disks -------------------------------------------------------------------------------------------


HOMES = {
    "15 home read-only": (
        "mount --bind /home/lab /home/lab && mount -o remount,bind,ro /home/lab",
        "Read-only file system",
    ),
    "15 home full": ("mount -t tmpfs -o size=64k,uid=10001,mode=700 none /home/lab", "No space left on device"),
    "15 home out of inodes": ("mount -t tmpfs -o nr_inodes=8,uid=10001,mode=700 none /home/lab", "No space left on device"),
}


@pytest.mark.parametrize(("mount", "words"), params(HOMES))
def test_a_home_that_cannot_be_written_to_is_named(operator: Tfdeploy, mount: str, words: str) -> None:
    write_job(operator, "disks", "quick.py")
    on_host(operator.lab, "n2", "rm -rf ~/tfdeploy")
    with changed_host(operator.lab, "n2", mount, "umount /home/lab"):
        answer = operator.json("sync", exit_code=1)
        rows = {row["host"]: row for row in answer["hosts"]}
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, False, True, True], rows
        assert "/home/lab/tfdeploy" in rows["n2"]["error"] and words in rows["n2"]["error"]
        said = operator.run("sync", exit_code=1).stderr
        assert re.search(r"n2.*/home/lab/tfdeploy", said) and "`workdir:`" in said
        assert operator.json("exec", "--limit", "n2", "--", "true")["ok"]
