"""Test invalid inventories, job files, arguments and flags. tfdeploy prints one clear error and
exits with code 2, before it contacts any host.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from support.faults.lines import params, variations
from support.lab.commandline import PATH, REPOSITORY

WATCH = """
import os, sys
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        with open(os.environ["WATCHED"], "a") as file:
            file.write("%s %r\\n" % (event, args))
sys.addaudithook(watch)
"""
SIGNS = {"what": "error: ", "where": "  where: ", "next": "  next: "}
GOOD = (
    "hosts:\n  n1: {address: 127.0.0.1, port: 9, user: me, identity_file: /dev/null}\nroles: "
    "{ps: [n1], worker: [n1]}\n"
)


class Shell:
    """Runs `tfdeploy` in a folder, and records all connections that it opens and all processes that
    it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.watched = folder / "watched"
        (folder / "site").mkdir()
        (folder / "site/sitecustomize.py").write_text(WATCH)
        self.env = {
            "HOME": str(folder),
            "PATH": PATH,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join((str(folder / "site"), str(REPOSITORY))),
            "WATCHED": str(self.watched),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tfdeploy", *args]
        return subprocess.run(
            argv,
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def refused(self, *args: str, what: str, where: str = "") -> dict[str, str]:
        """Return the error for these arguments. The exit code must be 2, and no host may be
        contacted.

        `what` and `where` must be parts of the error.
        """
        done = self.run(*args)
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stdout == "" and "Traceback" not in done.stderr
        assert not self.watched.exists(), self.watched.read_text()
        lines = done.stderr.splitlines()
        error = {"what": "", "where": "", "next": ""}
        part = ""
        for line in lines:
            label = next((name for name, sign in SIGNS.items() if line.startswith(sign)), "")
            assert label != "what" or not part, f"more than one error: {done.stderr}"
            part = label or part
            error[part] += line.removeprefix(SIGNS[part]).strip()
        assert what in f"{error['what']} {error['next']}" and where in error["where"], done.stderr
        return error


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


LONG = "x" * 300
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
INVENTORIES: dict[str, tuple[str | bytes, str, str]] = {
    "1 empty": ("", "empty", "bad.yaml"),
    "1 only comments": ("# nothing\n\n# here\n", "only comments", "bad.yaml"),
    "1 no hosts": ("roles: {ps: [n1]}\n", "no hosts", "bad.yaml:1"),
    "1 bad YAML": ("hosts:\n  n1: {port: 22\n  n2: {}\n", "", "bad.yaml:"),
    "1 a tab": ("hosts:\n\tn1: {}\n", "tab", "bad.yaml:2"),
    "1 not UTF-8": (b"hosts:\n  n1: {user: \xff\xfe}\n", "UTF-8", "bad.yaml"),
    "1 anchors that explode": (f"{BOMB}hosts: {{n1: {{}}}}\n", "", "bad.yaml:"),
    "2 unknown key": (
        "hosts:\n  n1:\n    adress: x\n",
        "unknown key 'adress'",
        "bad.yaml:3:hosts.n1.adress",
    ),
    "2 port 0": ("hosts: {n1: {port: 0}}", "from 1 to 65535", "bad.yaml:1:hosts.n1.port"),
    "2 port 70000": ("hosts: {n1: {port: 70000}}", "from 1 to 65535", "bad.yaml:1:hosts.n1.port"),
    "2 port 22a": ("hosts: {n1: {port: 22a}}", "'22a'", "bad.yaml:1:hosts.n1.port"),
    "2 wrong type": ("hosts: [n1]", "must be a mapping", "bad.yaml:1:hosts"),
    "3 host twice": ("hosts:\n  n1: {}\n  n1: {}\n", "lines 2 and 3", "bad.yaml:3:hosts.n1"),
    "3 one machine": (
        "hosts:\n  a: {address: x}\n  b: {address: x}\n",
        "a (bad.yaml:2) and b (bad.yaml:3) are one machine",
        "bad.yaml:3",
    ),
    "4 an option as a name": (
        "hosts:\n  -oProxyCommand=x: {}\n",
        "a name of letters",
        "bad.yaml:2",
    ),
    "4 an option as an address": (
        "hosts: {n1: {address: -oProxyCommand=x}}",
        "address",
        "bad.yaml:1:hosts.n1.address",
    ),
    "4 two commands as an address": (
        "hosts: {n1: {address: 'a;b'}}",
        "address",
        "bad.yaml:1:hosts.n1.address",
    ),
    "4 a command as a user": ("hosts: {n1: {user: $(x)}}", "user", "bad.yaml:1:hosts.n1.user"),
    "4 two lines as an address": (
        'hosts: {n1: {address: "a\\nb"}}',
        "address",
        "bad.yaml:1:hosts.n1.address",
    ),
    "4 a path as a name": ("hosts: {../x: {}}", "a name of letters", "bad.yaml:1"),
    "4 300 characters": (f"hosts: {{{LONG}: {{}}}}", "a name of letters", "bad.yaml:1"),
    "5 a role without hosts": (
        "hosts: {n1: {}}\nroles: {worker: []}",
        "names no host",
        "bad.yaml:2:roles.worker",
    ),
    "5 an unknown role": (
        "hosts: {n1: {}}\nroles: {wroker: [n1]}",
        "unknown role 'wroker'",
        "bad.yaml:2:roles.wroker",
    ),
    "6 a million hosts": (
        "hosts: {'n[1-1000000]': {}}",
        "1,000,000 names; at most 10,000",
        "bad.yaml:1",
    ),
    "7 an unknown placeholder": (
        "hosts: {n1: {workdir: '/x/{nmae}'}}",
        "unknown placeholder {nmae}",
        "bad.yaml:1",
    ),
    "7 an open brace": ("hosts: {n1: {workdir: '/x/{name'}}", "unclosed brace", "bad.yaml:1"),
}


@pytest.mark.parametrize(("content", "what", "where"), params(INVENTORIES))
def test_a_bad_inventory_is_refused_before_any_host_is_bothered(
    shell: Shell, content: str | bytes, what: str, where: str
) -> None:
    (shell.folder / "bad.yaml").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    error = shell.refused("exec", "-i", "bad.yaml", "--", "true", what=what, where=where)
    assert error["next"]


@pytest.mark.fault("6 a thousand hosts are read")
def test_a_thousand_hosts_are_read(shell: Shell) -> None:
    (shell.folder / "many.yaml").write_text(
        "hosts:\n  'gpu[0001-1000]': {address: '{name}.example', gpus: auto}\n"
    )
    hosts = json.loads(shell.run("inventory", "-i", "many.yaml", "--json").stdout)["hosts"]
    assert len(hosts) == 1000 and hosts[999]["address"] == "gpu1000.example"


JSON_WORDS = [
    ("exec", "--json", "--", "true"),
    ("logs", "--output=json"),
    ("logs", "--output", "json"),
    ("inventory", "--json"),
]


@pytest.mark.parametrize("args", JSON_WORDS)
def test_with_json_an_error_is_one_object_on_standard_output(
    shell: Shell, args: tuple[str, ...]
) -> None:
    (shell.folder / "bad.yaml").write_text("hosts:\n  n1: {prot: 22}\n")
    shell.env["TFDEPLOY_INVENTORY"] = "bad.yaml"
    done = shell.run(*args)
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout) == {
        "error": {
            "code": 2,
            "what": "unknown key 'prot'",
            "where": "bad.yaml:2:hosts.n1.prot",
            "next": "did you mean port?",
        }
    }


def test_the_watch_sees_what_a_good_inventory_begins(shell: Shell) -> None:
    (shell.folder / "good.yaml").write_text(
        GOOD.replace("identity_file: /dev/null", "identity_file: k")
    )
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "k"],
        cwd=shell.folder,
        check=True,
        timeout=30,
    )
    assert shell.run("exec", "-i", "good.yaml", "--", "true").returncode == 4
    assert "socket.connect" in shell.watched.read_text()


@pytest.mark.fault("1 no such inventory, none at all")
def test_an_inventory_that_is_not_there(shell: Shell) -> None:
    error = shell.refused(
        "exec", "-i", "nowhere.yaml", "--", "true", what="no such inventory", where="nowhere.yaml"
    )
    assert error["next"]
    error = shell.refused("exec", "--", "true", what="no inventory")
    assert "tfdeploy init" in error["next"]


@pytest.mark.fault("1 a BOM and CRLF are fine")
@pytest.mark.fault("2 IPv6 with and without brackets")
def test_a_mark_of_byte_order_and_windows_line_ends_are_accepted(shell: Shell) -> None:
    (shell.folder / "windows.yaml").write_bytes(
        b"\xef\xbb\xbfhosts:\r\n  n1: {address: '[::1]'}\r\n  n2: {address: '::2'}\r\n"
    )
    done = shell.run("inventory", "-i", "windows.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert [(host["name"], host["address"]) for host in json.loads(done.stdout)["hosts"]] == [
        ("n1", "::1"),
        ("n2", "::2"),
    ]


JOBS: dict[str, tuple[str, str, str]] = {
    "4 a job name that is a path": ("name: ../x", "name", "tfdeploy.yaml:1:name"),
    "4 an option as a job name": ("name: -x", "name", "tfdeploy.yaml:1:name"),
    "4 two commands as a data name": ("data: {'a;b': .}", "is not a name", "tfdeploy.yaml:1:data"),
    "2 an unknown key of the job": (
        "comand: [a]",
        "unknown key 'comand'",
        "tfdeploy.yaml:1:comand",
    ),
    "7 an unknown placeholder of the job": (
        "command: [python, '{jobname}']",
        "unknown placeholder {jobname}",
        "tfdeploy.yaml:1:command[1]",
    ),
    "7 an open brace in the job": (
        "command: [python, '{x']",
        "unclosed brace",
        "tfdeploy.yaml:1:command[1]",
    ),
    "no such mode": ("mode: mirored", "mode must be", "tfdeploy.yaml:1:mode"),
    "no such stall action": (
        "stall: {action: kill}",
        "action must be",
        "tfdeploy.yaml:1:stall.action",
    ),
    "no such compat": ("compat: v2", "compat must be", "tfdeploy.yaml:1:compat"),
    "too many restarts": ("restart: {max: 1001}", "from 0 to 1000", "tfdeploy.yaml:1:restart.max"),
    "5 two chiefs": (
        "mode: async\ncommand: [python, train.py]\nroles: {chief: {count: 2}}",
        "chief",
        "",
    ),
    "1 an empty job file": ("", "", "tfdeploy.yaml"),
}


@pytest.mark.parametrize(("text", "what", "where"), params(JOBS))
def test_a_bad_job_file_is_refused_before_any_host_is_bothered(
    shell: Shell, text: str, what: str, where: str
) -> None:
    (shell.folder / "good.yaml").write_text(GOOD)
    (shell.folder / "tfdeploy.yaml").write_text(text)
    (shell.folder / "train.py").write_text("")
    shell.refused("launch", "-i", "good.yaml", what=what, where=where)


ROLES = {
    "5 no worker": ("ps: [n1]", "worker"),
    "5 no ps in async": ("worker: [n1]", "ps"),
    "5 two hosts as chief": ("ps: [n1], worker: [n1], chief: [n1, n2]", "chief"),
}


@pytest.mark.parametrize(("roles", "what"), params(ROLES))
def test_roles_that_make_no_cluster_are_refused_with_the_rule(
    shell: Shell, roles: str, what: str
) -> None:
    hosts = "hosts:\n  n1: {address: 127.0.0.1, port: 9}\n  n2: {address: 127.0.0.1, port: 10}\n"
    (shell.folder / "roles.yaml").write_text(f"{hosts}roles: {{{roles}}}\n")
    (shell.folder / "train.py").write_text("")
    (shell.folder / "tfdeploy.yaml").write_text(
        "name: x\nmode: async\ncommand: [python, train.py]\n"
    )
    shell.refused("launch", "-i", "roles.yaml", what=what)


@pytest.mark.fault("4 six run names that are none")
@pytest.mark.parametrize("name", variations(["-x", "../x", "a;b", "a\nb", "$(x)", LONG]))
def test_a_run_needs_a_name_that_is_one(shell: Shell, name: str) -> None:
    (shell.folder / "good.yaml").write_text(GOOD)
    (shell.folder / "tfdeploy.yaml").write_text(
        "name: x\nmode: async\ncommand: [python, train.py]\n"
    )
    error = shell.refused(
        "launch", "-i", "good.yaml", f"--name={name}", what="cannot name a run", where="--name"
    )
    assert len(error["what"]) < 400


WORDS = {
    "unknown verb": (("lanch",), "unknown verb 'lanch'", "tfdeploy launch"),
    "verb far from any": (("zzz",), "unknown verb 'zzz'", "tfdeploy --help"),
    "unknown flag": (("sync", "--paralel", "3"), "unknown argument --paralel", "--parallel"),
    "flag with a value": (("logs", "--tsk=worker:0"), "unknown argument --tsk=worker:0", "--task"),
    "flag far from any": (("status", "--zzz"), "unknown argument --zzz", "tfdeploy status --help"),
    "no such mode": (("launch", "--mode", "asnyc"), "asnyc", ""),
    "bad number": (("exec", "--parallel", "0", "--", "true"), "not 1 or more", ""),
    "bad duration": (("logs", "--since", "soon"), "neither a duration nor a time", ""),
    "no command": (("exec",), "no command", "tfdeploy exec -- "),
    "bad expression": (("logs", "--output", "xml"), "xml", ""),
}


@pytest.mark.parametrize(("args", "what", "next"), WORDS.values(), ids=WORDS)
def test_words_that_are_none_are_refused_with_the_nearest(
    shell: Shell, args: tuple[str, ...], what: str, next: str
) -> None:
    (shell.folder / "good.yaml").write_text(GOOD)
    (shell.folder / "tfdeploy.yaml").write_text("mode: async\n")
    shell.env["TFDEPLOY_INVENTORY"] = "good.yaml"
    error = shell.refused(*args, what=what)
    assert next in (error["next"] or "")


def test_init_in_an_empty_folder_gives_files_that_load(shell: Shell) -> None:
    done = shell.run("init")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["inventories/hosts.yaml", "tfdeploy.yaml"]
    assert shell.run("inventory").returncode == 0
    answer = json.loads(shell.run("inventory", "--json").stdout)
    assert len(answer["hosts"]) == 2 and not answer["roles"]
    before = {path: path.read_text() for path in shell.folder.rglob("*.yaml")}
    again = shell.run("init")
    assert again.returncode == 0 and "exists already and was not changed" in again.stderr
    assert {path: path.read_text() for path in shell.folder.rglob("*.yaml")} == before
    assert not shell.watched.exists()


def test_init_asks_on_a_terminal(shell: Shell) -> None:
    master, slave = pty.openpty()
    argv = [sys.executable, "-m", "tfdeploy", "init"]
    with subprocess.Popen(
        argv, env=shell.env, cwd=shell.folder, stdin=slave, stdout=subprocess.PIPE, stderr=slave
    ) as asking:
        os.close(slave)
        os.write(master, b"me@192.0.2.7:2200, 192.0.2.8\nsync\n\n")
        assert asking.wait(120) == 0
    os.close(master)
    (first, second) = json.loads(shell.run("inventory", "--json").stdout)["hosts"]
    assert (first["user"], first["address"], first["port"], second["address"]) == (
        "me",
        "192.0.2.7",
        2200,
        "192.0.2.8",
    )
    assert "mode: sync" in (shell.folder / "tfdeploy.yaml").read_text()


def test_docs_name_every_key_that_is_built(shell: Shell) -> None:
    text = shell.run("docs").stdout
    for key in (
        "identity_file",
        "workdir",
        "advertise",
        "command",
        "keep",
        "secrets",
        "{worker_hosts}",
        "finish",
    ):
        assert key in text
    rows = json.loads(shell.run("docs", "--json").stdout)
    assert rows
