"""Test how an inventory is read, and which errors an invalid inventory causes."""

from pathlib import Path

import pytest

from tfdeploy.config import load_inventory, load_inventory_file
from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host

CONTRACT = """\
defaults:
  user: ml
  port: 22
  identity_file: ~/.ssh/id_ed25519
  known_hosts: keys/known_hosts
  jump: bastion.example.org
  python: ~/env/bin/python
  workdir: ~/tfdeploy
  ports: 2222-2299
hosts:
  n1: {address: 192.0.2.10}
  n2: {address: 192.0.2.11, port: 2200, gpus: [0, 1]}
  gpu[03-10]: {gpus: auto, address: "{name}.example.org"}
  big: {address: 198.51.100.7, advertise: 10.0.0.7}
roles:
  ps: [n1]
  worker: [n2, "gpu[03-10]"]
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function load(text or bytes).

    The function writes the content to lab.yaml in the current folder and returns the inventory that
    tfdeploy reads from this file.
    """
    monkeypatch.chdir(tmp_path)

    def load(content):
        Path("lab.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_inventory(Path("lab.yaml"))

    return load


def test_example_of_contract(load, tmp_path):
    inventory = load(CONTRACT)
    assert [host.name for host in inventory.hosts] == [
        "n1",
        "n2",
        *(f"gpu{n:02}" for n in range(3, 11)),
        "big",
    ]
    n1, n2, gpu, big = (inventory.host(name) for name in ("n1", "n2", "gpu07", "big"))
    assert (n1.user, n1.port, n1.jump, n1.python) == (
        "ml",
        22,
        "bastion.example.org",
        "~/env/bin/python",
    )
    assert (n1.workdir, n1.ports, n1.gpus) == ("~/tfdeploy", (2222, 2299), "auto")
    assert (n1.identity_file, n1.known_hosts) == (
        "~/.ssh/id_ed25519",
        str(tmp_path / "keys/known_hosts"),
    )
    assert (n2.port, n2.gpus) == (2200, (0, 1))
    assert (gpu.address, gpu.source) == ("gpu07.example.org", "lab.yaml:13")
    assert big.advertise == "10.0.0.7"
    assert inventory.roles == {
        "ps": ("n1",),
        "worker": ("n2", *(f"gpu{n:02}" for n in range(3, 11))),
    }


def host(load, keys):
    return load(f"hosts:\n  n1: {{{keys}}}\n").hosts[0]


ACCEPTED = [
    ("", "address", "n1"),
    ("address: 2001:db8::1", "address", "2001:db8::1"),
    ('address: "[2001:db8::1]"', "address", "2001:db8::1"),
    ("address: fe80::1%eth0", "address", "fe80::1%eth0"),
    ("address: 10.0.0.1", "address", "10.0.0.1"),
    ("address: node_7.lab.example.org.", "address", "node_7.lab.example.org."),
    ('address: "{name}.x.org"', "address", "n1.x.org"),
    ("port: 1", "port", 1),
    ('port: "65535"', "port", 65535),
    ("user: a.b-c_d", "user", "a.b-c_d"),
    ("user: 1000", "user", "1000"),
    ('workdir: "/scratch/{name}/tf"', "workdir", "/scratch/n1/tf"),
    ("workdir: ~/a b/", "workdir", "~/a b"),
    ("python: python3.11", "python", "python3.11"),
    ("ports: 2222", "ports", (2222, 2222)),
    ("gpus: auto", "gpus", "auto"),
    ("gpus: none", "gpus", "none"),
    ("gpus: 0", "gpus", "none"),
    ("gpus: 4", "gpus", 4),
    ("gpus: []", "gpus", "none"),
    ("gpus: [3, 1]", "gpus", (3, 1)),
    ("jump: none", "jump", "none"),
    ('jump: "a@b.org:22,[2001:db8::1]:2200,c"', "jump", "a@b.org:22,[2001:db8::1]:2200,c"),
    ("identity_file: /k/%u", "identity_file", "/k/%u"),
    ("port: ~", "port", None),
]


@pytest.mark.parametrize(("keys", "field", "value"), ACCEPTED)
def test_accepted_values(load, keys, field, value):
    assert getattr(host(load, keys), field) == value


LONG = "x" * 300
REFUSED_VALUES = [
    ("port: 0", "port", "from 1 to 65535"),
    ("port: 70000", "port", "from 1 to 65535"),
    ("port: 22a", "port", "'22a'"),
    ("port: -1", "port", "from 1 to 65535"),
    ("port: true", "port", "not 'true'"),
    ("port: [22]", "port", "not a list"),
    ("port: 2_2", "port", "from 1 to 65535"),
    ("port: " + "9" * 5000, "port", "5000 characters"),
    ("address: -oProxyCommand=x", "address", "host name or an IP address"),
    ("address: a;b", "address", "host name"),
    ("address: $(x)", "address", "host name"),
    ('address: "a\\nb"', "address", "host name"),
    ("address: ../x", "address", "host name"),
    (f"address: {LONG}", "address", "300 characters"),
    ("address: 300.1.1.1", "address", "host name"),
    ("address: 10.0.0.1:2200", "address", "host name"),
    ("address: ml@10.0.0.1", "address", "host name"),
    ("address: {a: b}", "address", "not a mapping"),
    ("address: yes", "address", "not 'yes'"),
    ('address: ""', "address", "not ''"),
    ('address: "a\\0b"', "address", "host name"),
    ("address: \u0430.org", "address", "host name"),
    ("user: -l", "user", "user name"),
    ("user: a;b", "user", "user name"),
    ("user: a@b", "user", "user name"),
    ("user: $(x)", "user", "user name"),
    ("jump: -oProxyCommand=x", "jump", "[user@]host[:port]"),
    ("jump: 'a,-x'", "jump", "[user@]host[:port]"),
    ("jump: 'a,,b'", "jump", "[user@]host[:port]"),
    ("jump: a:0", "jump", "[user@]host[:port]"),
    ("jump: a:99999999", "jump", "[user@]host[:port]"),
    ("jump: '" + "a," * 2000 + "a'", "jump", "at most 16"),
    ("jump: a:0655350", "jump", "[user@]host[:port]"),
    ("jump: $(x)@a", "jump", "[user@]host[:port]"),
    ("python: -c", "python", "interpreter"),
    ("python: python3 -u", "python", "interpreter"),
    ("python: bin/python", "python", "begins with / or ~/"),
    ("python: /opt/../python", "python", "without .."),
    ("workdir: tfdeploy", "workdir", "begins with / or ~/"),
    ("workdir: /", "workdir", "begins with / or ~/"),
    ("workdir: ~/", "workdir", "begins with / or ~/"),
    ("workdir: ~other/x", "workdir", "begins with / or ~/"),
    ("workdir: ~/$(x)", "workdir", "begins with / or ~/"),
    ("workdir: ~/a/../../b", "workdir", "without .."),
    ("ports: 2299-2222", "ports", "lower end first"),
    ("ports: 0-10", "ports", "from 1"),
    ("ports: 2222-70000", "ports", "to 65535"),
    ("ports: [2222]", "ports", "range of ports"),
    ("gpus: some", "gpus", "auto, none, a count or a list"),
    ("gpus: -1", "gpus", "auto, none, a count or a list"),
    ("gpus: [0, 0]", "gpus", "twice"),
    ("gpus: [a]", "gpus[0]", "whole number"),
    ("identity_file: -x", "identity_file", "does not begin with -"),
    ('known_hosts: "a\\nb"', "known_hosts", "control characters"),
    ('identity_file: "~/.ssh/$${{NAME}}"', "identity_file", "without ${"),
    ('workdir: "/x/{nmae}"', "workdir", "unknown placeholder {nmae}"),
    ('workdir: "/x/{name"', "workdir", "unclosed brace"),
]


@pytest.mark.parametrize(("keys", "path", "words"), REFUSED_VALUES)
@pytest.mark.parametrize("place", ["host", "defaults"])
def test_refused_values_name_file_line_and_key(load, keys, path, words, place):
    text = (
        f"hosts:\n  n1: {{{keys}}}\n"
        if place == "host"
        else f"hosts: {{n1: {{}}}}\ndefaults: {{{keys}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert words in caught.value.what
    assert len(caught.value.what) < 400
    prefix = "hosts.n1" if place == "host" else "defaults"
    assert caught.value.where == f"lab.yaml:2:{prefix}.{path}"


NAMES_REFUSED = ["-oProxyCommand=x", "a;b", "$(x)", "../x", LONG, "a b", ".x", "\u0430", "a/b", "ü"]


@pytest.mark.parametrize("name", [*NAMES_REFUSED, '"a\\nb"', '""'])
def test_refused_names(load, name):
    with pytest.raises(ConfigError, match="a name of letters, digits") as caught:
        load(f"hosts:\n  {name}: {{address: a}}\n")
    assert caught.value.where.startswith("lab.yaml:2:hosts.")
    assert caught.value.next


FAULTS = {
    "no hosts": ("roles: {ps: [n1]}", "no hosts", "lab.yaml:1", "hosts:"),
    "hosts are nothing": ("hosts:\n", "no hosts", "lab.yaml:1", "hosts:"),
    "hosts are empty": ("hosts: {}\n", "no hosts", "lab.yaml:1", "hosts:"),
    "hosts are a list": ("hosts: [n1]\n", "hosts must be a mapping", "lab.yaml:1:hosts", None),
    "unknown top key": (
        "host: {n1: {}}",
        "unknown key 'host'",
        "lab.yaml:1:host",
        "did you mean hosts?",
    ),
    "unknown host key": (
        "hosts:\n  n1:\n    adress: a",
        "unknown key 'adress'",
        "lab.yaml:3:hosts.n1.adress",
        "address?",
    ),
    "unknown default": (
        "hosts: {n1: {}}\ndefaults:\n  usr: a",
        "unknown key 'usr'",
        "lab.yaml:3:defaults.usr",
        "user?",
    ),
    "far from any key": (
        "hosts: {n1: {zzz: 1}}",
        "unknown key 'zzz'",
        "lab.yaml:1:hosts.n1.zzz",
        "the keys here are: address",
    ),
    "host is an address": (
        "hosts: {n1: 192.0.2.1}",
        "n1 must be",
        "lab.yaml:1:hosts.n1",
        "n1: {address: 192.0.2.1}",
    ),
    "key twice": (
        "hosts:\n  n1:\n    port: 1\n    port: 2",
        "the key port is given twice: lines 3 and 4",
        "lab.yaml:4",
        "remove one",
    ),
    "host twice": (
        "hosts:\n  n1: {}\n\n  n1: {}",
        "the key n1 is given twice: lines 2 and 4",
        "lab.yaml:4:hosts.n1",
        "remove one",
    ),
    "host in two ranges": (
        "hosts:\n  n[1-3]: {}\n  n3: {}",
        "n3 is defined twice: lab.yaml:2 and lab.yaml:3",
        "lab.yaml:3",
        "remove",
    ),
    "one machine": (
        "hosts:\n  a: {address: X.org}\n  b: {address: x.org, port: 22}",
        "a (lab.yaml:2) and b (lab.yaml:3) are one machine: x.org port 22",
        "lab.yaml:3",
        "correct",
    ),
    "one IPv6 machine": (
        "hosts:\n  a: {address: '::1'}\n  b: {address: '[0:0::1]'}",
        "a (lab.yaml:2) and b (lab.yaml:3) are one machine",
        "lab.yaml:3",
        "correct",
    ),
    "range without name": (
        "hosts:\n  n[1-2]: {address: a}",
        "are one machine",
        "lab.yaml:2",
        "correct",
    ),
    "million hosts": (
        "hosts: {'n[1-1000000]': {}}",
        "1,000,000 names; at most 10,000",
        "lab.yaml:1",
        "smaller range",
    ),
    "million in two": (
        "hosts: {'r[1-1000]n[1-1000]': {}}",
        "1,000,000 names",
        "lab.yaml:1",
        "smaller range",
    ),
    "many in sum": (
        "hosts: {'a[1-9999]': {}, 'b[1-9999]': {}}",
        "more than 10,000",
        "lab.yaml:1",
        "split",
    ),
    "backwards": ("hosts: {'n[3-1]': {}}", "runs backwards", "lab.yaml:1", "[1-3]"),
    "letters in range": ("hosts: {'n[a-c]': {}}", "is not a range", "lab.yaml:1", "n[01-16]"),
    "open bracket": ("hosts: {'n[1': {}}", "bracket", "lab.yaml:1", "n[01-16]"),
    "unknown role": (
        "hosts: {n1: {}}\nroles: {wroker: [n1]}",
        "unknown role 'wroker'",
        "lab.yaml:2:roles.wroker",
        "worker?",
    ),
    "unknown host in role": (
        "hosts: {gpu1: {}}\nroles:\n  ps: [gqu1]",
        "names gqu1",
        "lab.yaml:3:roles.ps[0]",
        "gpu1?",
    ),
    "role names nobody": (
        "hosts: {n1: {}}\nroles: {ps: []}",
        "role ps names no host",
        "lab.yaml:2:roles.ps",
        "ps: [n1]",
    ),
    "role of a list without brackets": (
        "hosts: {n1: {}, n2: {}}\nroles:\n  ps: n1, n[2-3]",
        "ps must be a list of hosts, not 'n1, n[2-3]'",
        "lab.yaml:3:roles.ps",
        'ps: [n1, "n[2-3]"]',
    ),
    "role is nothing": (
        "hosts: {n1: {}}\nroles:\n  ps:",
        "role ps names no host",
        "lab.yaml:3:roles.ps",
        "ps: [n1]",
    ),
    "role is a mapping": (
        "hosts: {n1: {}}\nroles: {ps: {n1: 1}}",
        "ps must be a host's name",
        "lab.yaml:2:roles.ps",
        None,
    ),
    "twice in a role": (
        "hosts: {n1: {}}\nroles:\n  ps:\n  - n1\n  - n1",
        "twice in role ps: lines 4 and 5",
        "lab.yaml:5",
        "once",
    ),
    "huge range in role": (
        "hosts: {n1: {}}\nroles: {ps: ['n[1-99999]']}",
        "at most 10,000",
        "lab.yaml:2:roles.ps",
        "smaller",
    ),
    "only a list": ("- n1\n- n2\n", "must be a mapping", "lab.yaml:1", "tfdeploy docs"),
    "hostfile": ("n1 slots=4\nn2 slots=4\n", "must be a mapping", "lab.yaml:1", "tfdeploy docs"),
}


@pytest.mark.parametrize(("text", "message", "where", "next"), FAULTS.values(), ids=FAULTS)
def test_faults(load, text, message, where, next):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert message in caught.value.what
    assert caught.value.where.startswith(where)
    assert next is None or next in (caught.value.next or "")
    assert caught.value.exit_code == 2


def test_same_address_behind_other_jump_or_port_is_another_host(load):
    assert (
        len(load("hosts: {a: {address: 10.0.0.5, jump: x}, b: {address: 10.0.0.5, jump: y}}").hosts)
        == 2
    )
    assert (
        len(
            load(
                "hosts: {a: {address: 127.0.0.1, port: 2200}, b: {address: 127.0.0.1, port: 2201}}"
            ).hosts
        )
        == 2
    )


def test_yaml_anchors_and_merges_are_read(load):
    inventory = load("defaults: &d {user: ml}\nhosts:\n  n1: {<<: *d, port: 2200}\n")
    assert (inventory.hosts[0].user, inventory.hosts[0].port) == ("ml", 2200)


def test_a_thousand_hosts_are_read(load):
    hosts = "".join(
        f"  n{i:04}: {{address: 10.0.{i // 250}.{i % 250 + 1}, port: 22, gpus: [0, 1]}}\n"
        for i in range(1000)
    )
    text = (
        CONTRACT.split("hosts:\n  n1")[0]
        + "hosts:\n"
        + hosts
        + "roles:\n  worker: ['n[0000-0999]']\n"
    )
    assert len(load(text).roles["worker"]) == 1000


def test_origin_of_each_setting(load):
    load(CONTRACT)
    given = load_inventory_file(Path("lab.yaml")).settings["n2"]
    assert {
        key: setting.node.location for key, setting in given.items() if key in ("user", "port")
    } == {
        "user": "lab.yaml:2",
        "port": "lab.yaml:12",
    }
    assert given["user"].node.path == "defaults.user"
    assert "advertise" not in given


def test_message_names_line_of_setting_once_for_many_hosts(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("defaults: {user: ml}\nhosts:\n  n[1-2]: {}\n  n3: {python: /opt/python}\n")
    hosts = load_inventory(path).hosts
    assert [host.setting_with_place("user") for host in hosts] == [f"`user:` ({path}:1)"] * 3
    assert hosts[2].setting_with_place("python") == f"`python:` ({path}:4)"
    assert hosts[0].setting_with_place("python") == f"`python:` ({path})"
    assert Host(name="n1", address="n1").setting_with_place("user") == "`user:`"
