"""Test `tfdeploy check` on real hosts.

Healthy hosts must pass. Each fault that a test produces must be reported with its host and with a
fix. FIXTURES simulates what this machine does not have: GPUs with a driver, quotas and
systemd-logind.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy
from support.lab.hosts import host_changed_by_scripts, on_host, set_inventory
from support.lab.jobs import write_job
from support.lab.login_shell import login_shell
from support.waiting import wait_for
from tfdeploy import agent
from tfdeploy.lab import Lab
from tfdeploy.ui.checks import show_check_problems
from tfdeploy.ui.terminal import Terminal

pytestmark = pytest.mark.isolated


def wrong(answer: Any) -> dict[str, list[dict[str, Any]]]:
    """Return {host: those of its checks that are not ok}."""
    return {
        host["host"]: [each for each in host["checks"] if not each["ok"]]
        for host in answer["hosts"]
    }


def test_on_healthy_hosts_nothing_is_wrong(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(isolated_lab)
    answer = operator.json("check")
    assert answer["ok"] and wrong(answer) == {host: [] for host in isolated_lab.hosts}
    pairs = {(link["from"], link["to"]) for link in answer["links"]}
    assert len(pairs) == 12 and all(link["ok"] and link["ms"] is None for link in answer["links"])
    answer = operator.json("check", "--deep", "--limit", "n[1-2]")
    assert len(answer["links"]) == 4 and all(
        link["ms"] > 0 and link["mbit_s"] > 1 for link in answer["links"]
    )
    assert operator.run("check", exit_code=0).stdout == "4 hosts, 12 links: nothing wrong\n"


def test_with_a_job_its_own_ports_are_tried(
    few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(few_hosts)
    write_job(operator, "ports", "quick.py")
    planned = operator.json("launch", "--dry-run")
    answer = operator.json("check")
    assert answer["ok"] and not any(wrong(answer).values()), wrong(answer)
    for host in few_hosts.hosts:
        tried = {str(link["port"]) for link in answer["links"] if link["to"] == host}
        assert {
            task["address"].rpartition(":")[2] for task in planned["tasks"] if task["host"] == host
        } < tried
    write_job(operator, "ports", "quick.py", protect="firewall")
    unable = wrong(operator.json("check", exit_code=1))
    assert [each["check"] for unreachable in unable.values() for each in unreachable] == [
        "protect"
    ] * len(few_hosts.hosts), unable
    write_job(operator, "ports", "ddp.py")
    refused = wrong(operator.json("check", exit_code=1))["n1"]
    launched = operator.json("launch", "--dry-run", exit_code=3)["error"]
    said = {"check": "plan", "detail": launched["what"], "fix": launched["next"]}
    assert "which mode async does not support" in launched["what"]
    assert any(said.items() <= each.items() for each in refused), refused
    write_job(operator, "ports", "quick.py", roles={"ps": {"count": 400}})
    refused = [
        each
        for unreachable in wrong(operator.json("check", exit_code=1)).values()
        for each in unreachable
    ]
    assert [each["check"] for each in refused] == ["plan"] and "ports" in refused[0]["detail"], (
        refused
    )


# --- planted faults

PYTHON = r"""mkdir -p /usr/local/lib/site/tensorflow-{tensorflow}.dist-info \
  /usr/local/lib/site/tf_keras-2.21.0.dist-info
printf '#!/bin/sh\nPYTHONPATH=/usr/local/lib/site exec /usr/bin/python3 "$@"\n' \
  > /usr/local/bin/with-tensorflow
chmod 755 /usr/local/bin/with-tensorflow"""
SCRIPT = """cat > /usr/local/bin/{name} <<'EOF'
#!/bin/sh
{text}
EOF
chmod 755 /usr/local/bin/{name}"""
CARD = "{index}, GPU-00000000-0000-0000-0000-00000000000{index}, NVIDIA Fixture, 81559, {used}"
FIXTURES = {
    "driver": SCRIPT.format(
        name="nvidia-smi",
        text=f"""case "$1" in *driver_version*) echo 450.51.06; echo 450.51.06;; *)
echo '{CARD.format(index=0, used=3)}'; echo '{CARD.format(index=1, used=70000)}';; esac""",
    ),
    "no driver": SCRIPT.format(
        name="nvidia-smi", text='echo "Driver/library version mismatch"; exit 18'
    ),
    "quota": SCRIPT.format(
        name="quota",
        text="""echo 'Disk quotas for user lab (uid 10001):'
echo '     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace'
awk '{ print $1, "1023000*", 1000000, 1024000, 604800, 7, 0, 0, 0 }' /proc/self/mounts | sort -u
exit 1""",
    ),
    "logind": r"""mkdir -p /run/systemd/sessions /etc/systemd/logind.conf.d
printf '[Login]\nKillUserProcesses=yes\n' > /etc/systemd/logind.conf.d/plant.conf""",
}
SMALL_DISK = """mkdir -p /home/lab/small &&
mount -t tmpfs -o size=40m,nr_inodes=900,noexec tmpfs /home/lab/small
chown lab: /home/lab/small && chmod 700 /home/lab/small"""
BASHRC = """cat > ~/.bashrc <<'EOF'
ulimit -n 200; ulimit -t 90000
export http_proxy=http://192.0.2.9:3128 TF_CONFIG='{}'
echo welcome to n6
EOF"""
HOLD = (
    "import socket, time; held = [socket.create_server((str(), port)) for port in (2310, 2311)]; "
    "time.sleep(600)"
)
FILTER = """nft add table inet plant
nft add chain inet plant in '{{ type filter hook input priority 0; }}'
nft add rule inet plant in tcp dport 2222-2299 {verdict}"""
SCARCE = (
    "rm /usr/bin/rsync; chmod 755 /tmp; mount -t tmpfs -o size=64m tmpfs /dev/shm; chmod 1777 "
    "/dev/shm"
)
BEHIND = """
import time as _time
_true = _time.time
_time.time = lambda: _true() - 400.0
"""


class Fault(NamedTuple):
    """One fault that `check` must report: the host, the name of the check, a part of its detail,
    and a part of its fix.
    """

    host: str
    check: str
    detail: str
    fix: str


FAULTS = (
    Fault("stranger", "ssh", "is not known", "tfdeploy trust --limit stranger"),
    Fault("changed", "ssh", "has changed", "tfdeploy trust --renew changed"),
    Fault("nobody", "ssh", "refused the key", "ssh-copy-id"),
    Fault("closed", "ssh", "no sshd listens", "check `address:`"),
    Fault("nowhere", "ssh", "cannot be resolved", "correct `address:` ("),
    Fault("jumped", "ssh", "the jump host", "check `jump:` ("),
    Fault("keyless", "ssh", "/nowhere/key", "correct or remove `identity_file:`"),
    Fault("open", "agent", "/srv/open", "write `workdir: ~/tfdeploy`"),
    Fault("n8", "agent", "login shell ended", "login shell that runs commands"),
    Fault(
        "n2",
        "tensorflow",
        "TensorFlow 2.20.0, most hosts have 2.21.0",
        "pip install tensorflow==2.21.0",
    ),
    Fault(
        "n3",
        "tensorflow",
        "no TensorFlow, most hosts have 2.21.0",
        "pip install tensorflow==2.21.0",
    ),
    Fault(
        "n3",
        "tensorflow",
        "no tf_keras",
        "--limit n3 -- /usr/local/bin/with-tensorflow -m pip install tensorflow==2.21.0 "
        "tf_keras==2.21.0",
    ),
    Fault("n4", "python", "there is no program python9", "set `python:` ("),
    Fault("n4", "rsync", "rsync is missing", "apt-get install -y rsync"),
    Fault("n4", "shared memory", "has 64 MiB free", "remount,size="),
    Fault("n4", "temporary files", "cannot write in /tmp", "chmod 1777 /tmp"),
    Fault("n4", "gpus", "GPU 3", "write `gpus: auto` in place of `gpus:` ("),
    Fault("n5", "disk", "free in /home/lab/small/w, 64 MiB needed", "free"),
    Fault("n5", "inodes", "inodes free", "df -i"),
    Fault("n5", "filesystem", "mounted noexec", "remount,exec /home/lab/small"),
    Fault("n5", "filesystem", "is on tmpfs", "set `workdir:`"),
    Fault("n5", "logout", "KillUserProcesses", "loginctl enable-linger lab"),
    Fault("n5", "logout", "RemoveIPC", "loginctl enable-linger lab"),
    Fault("n6", "quota", "the quota of lab leaves", "quota -s"),
    Fault("n6", "limits", "the limit of open files is 200", "lab - nofile 65536"),
    Fault("n6", "limits", "killed after 90000 s", "lab - cpu unlimited"),
    Fault("n6", "environment", "http_proxy set", "/etc/environment"),
    Fault("n6", "environment", "TF_CONFIG set", "~/.bashrc"),
    Fault("n6", "shell", "welcome to n6", "[ -t 1 ] || return"),
    Fault("n7", "gpus", "GPU 1 (NVIDIA Fixture)", "--limit n7 -- nvidia-smi"),
    Fault("n7", "driver", "450.51.06 is older than 525.60.13", "install NVIDIA's driver 525.60.13"),
    Fault(
        "n7",
        "ports",
        "may be given to any outgoing connection",
        "ip_local_reserved_ports=40000-40009",
    ),
    Fault("n7", "workdir", "other users of the host may look", "chmod o-rwx /home/lab/tfdeploy"),
    Fault("n7", "clock", "its clock is 6 min", "as root on n7: timedatectl set-ntp true"),
    Fault("n2", "gpus", "version mismatch", "reboot"),
    Fault(
        "n3", "ports", "0 ports of 2310-2311 are free; taken: 2310 by pid", "widen `ports:` of n3"
    ),
    Fault("n1", "address", "maps worker-two (n2) to loopback", "advertise: IP"),
    Fault("n1", "address", "n1 and twice are one machine", "--exclude twice"),
)
# Failing links between hosts. A row is (from, to, a part of the reason, a part of the fix).
LINKS = (
    ("n6", "n4", "no answer: a firewall drops the packets", "ufw allow 2222:2299/tcp"),
    ("n6", "n5", "refused, although that host listens", "ufw allow 2222:2299/tcp"),
    ("n1", "n2", "the name worker-two means 127.0.1.1", "/etc/hosts"),
    ("n3", "n6", "n2 answers at", "advertise:"),
)


# {additional name of n1 in the inventory: the settings that are wrong under this name}
NAMES = {
    "stranger": {"known_hosts": "/dev/null"},
    "changed": {"known_hosts": "{home}/other"},
    "nobody": {"user": "nobody-here"},
    "closed": {"port": "9"},
    "jumped": {"jump": "lab@{n1}:9"},
    "keyless": {"identity_file": "/nowhere/key"},
    "open": {"workdir": "/srv/open/tfdeploy"},
    "twice": {},
}


@pytest.fixture(scope="module")
def planted(new_lab: Callable[..., Lab]) -> Lab:
    lab = new_lab("isolated", 8)
    address = {str(row["host"]): str(row["address"]) for row in lab.status()}
    for host in lab.hosts:
        called = "127.0.1.1" if host == "n1" else address["n2"]
        python = PYTHON.format(tensorflow="2.20.0" if host == "n2" else "2.21.0")
        on_host(lab, host, f"{python}\necho '{called} worker-two' >> /etc/hosts", root=True)
    for host, script in (
        (
            "n1",
            "\n".join(
                [
                    "mkdir -m 777 /srv/open",
                    *(f"ip addr add {each}/24 dev eth0" for each in further_names(lab).values()),
                ]
            ),
        ),
        ("n2", FIXTURES["no driver"]),
        ("n3", "rm -r /usr/local/lib/site/*"),
        ("n4", f"{SCARCE}\n{FILTER.format(verdict='drop')}"),
        (
            "n5",
            f"{SMALL_DISK}\n{FIXTURES['logind']}\n{FILTER.format(verdict='reject with tcp reset')}",
        ),
        ("n6", FIXTURES["quota"]),
        ("n7", FIXTURES["driver"]),
    ):
        on_host(lab, host, script, root=True)
    on_host(lab, "n3", f'nohup python3 -c "{HOLD}" > /dev/null 2>&1 &')
    held = "ss -Hltn | grep -c ':231[01] ' || true"
    wait_for(lambda: on_host(lab, "n3", held) == "2", 20, "the ports are taken")
    on_host(lab, "n6", BASHRC)
    on_host(lab, "n7", "mkdir -p ~/tfdeploy && chmod 755 ~ ~/tfdeploy")
    return lab


def further_names(lab: Lab) -> dict[str, str]:
    """Return {name: an additional address of n1}, for each name in NAMES."""
    first = next(str(row["address"]) for row in lab.status() if row["host"] == "n1")
    return {name: f"{first.rpartition('.')[0]}.{number}" for number, name in enumerate(NAMES, 201)}


def set_faulty_inventory(operator: Tfdeploy) -> None:
    """Write an inventory whose settings do not fit the lab's hosts, and add names for n1. Most of
    these names cannot be reached.
    """
    lab, further = operator.lab, further_names(operator.lab)
    address = {str(row["host"]): str(row["address"]) for row in lab.status()}
    keys = [line.split()[1:] for line in lab.known_hosts.read_text().splitlines()]
    for name, key in (("known", keys[0]), ("other", keys[1])):
        (operator.home / name).write_text(
            "".join(f"{each} {' '.join(key)}\n" for each in further.values())
        )
    changes: dict[str, dict[str, Any]] = {
        "n2": {"advertise": "worker-two"},
        "n3": {"ports": "2310-2311"},
        "n4": {"python": "python9", "gpus": [3]},
        "n5": {"workdir": "/home/lab/small/w"},
        "n6": {"advertise": address["n2"]},
        "n7": {"ports": "40000-40009"},
        "nowhere": {"address": "no-such-host.invalid"},
    }
    for name, said in NAMES.items():
        told = {
            key: value.format(home=operator.home, n1=address["n1"]) for key, value in said.items()
        }
        changes[name] = {
            "address": further[name],
            "known_hosts": str(operator.home / "known"),
            **told,
        }
    set_inventory(operator, defaults={"python": "/usr/local/bin/with-tensorflow"}, hosts=changes)


@pytest.mark.fault("32 all that a preflight names before a launch")
def test_each_planted_fault_is_named_with_its_host_and_its_cure(
    planted: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(planted)
    operator.run("exec", "--", "true", exit_code=0)
    set_faulty_inventory(operator)
    with ExitStack() as stack:
        stack.enter_context(login_shell(planted, "n8", "/bin/false"))
        stack.enter_context(tampered_agent(planted, "n7", {agent: BEHIND}))
        answer = operator.json("check", exit_code=4)
    problems = wrong(answer)
    missing = [
        fault for fault in FAULTS if not any(_says(each, fault) for each in problems[fault.host])
    ]
    assert missing == [], problems
    for source, to, why, fix in LINKS:
        links = [link for link in answer["links"] if (link["from"], link["to"]) == (source, to)]
        assert links and all(
            not link["ok"] and why in link["why"] and fix in link["fix"] for link in links
        ), links
    shown = io.StringIO()
    show_check_problems(Terminal(shown, None, False), answer["hosts"], answer["links"])
    assert [each.detail for each in FAULTS if each.detail not in shown.getvalue()] == [], (
        shown.getvalue()
    )
    assert not answer["ok"] and len(shown.getvalue().splitlines()) < 2 * (len(FAULTS) + 10), (
        shown.getvalue()
    )


def _says(answer: dict[str, Any], fault: Fault) -> bool:
    return (
        answer["check"] == fault.check
        and fault.detail in answer["detail"]
        and fault.fix in (answer["fix"] or "")
    )


def test_a_launch_ends_with_what_is_an_error_and_force_goes_on(
    few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(few_hosts)
    write_job(operator, "forced", "quick.py", "--steps=1")
    with host_changed_by_scripts(few_hosts, "n2", FIXTURES["quota"], "rm /usr/local/bin/quota"):
        stderr = operator.run("launch", "--detach", exit_code=3).stderr
        assert "the quota of lab leaves" in stderr and "--force" in stderr and "n2" in stderr
        stderr = operator.run("launch", "--force", "--wait", exit_code=0).stderr
        assert "n2: the quota of lab leaves" in stderr
