"""Test inventories in the formats of other tools: how each is read, and which lines are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.config import find_inventory, load_inventory, load_job
from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host, Inventory


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_list(text: str) -> Inventory:
    return load_inventory(find_inventory(text, {}, None, Path.cwd()).path)


def read(name: str, text: str, **other_files: str) -> Inventory:
    """Write `text` to the file `name`, and return the inventory that tfdeploy reads from this file.

    `other_files` are further files to write. Their names have __ in place of /.
    """
    for other, content in other_files.items():
        path = Path(other.replace("__", "/"))
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    Path(name).write_text(text)
    return load_inventory(Path.cwd() / name)


def settings_as_yaml(host: Host) -> dict[str, object]:
    """Return those settings of the host that differ from the defaults. The host's position in the
    file is left out.
    """
    plain = Host(name=host.name, address=host.address)
    names = ("port", "user", "identity_file", "jump", "python", "slots")
    settings = {name: getattr(host, name) for name in names}
    return {name: value for name, value in settings.items() if value != getattr(plain, name)}


def names(inventory: Inventory) -> list[str]:
    return [host.name for host in inventory.hosts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1,", [("n1", "n1", {})]),
        ("n1,ml@n2:2200", [("n1", "n1", {}), ("n2", "n2", {"user": "ml", "port": 2200})]),
        ("gpu[08-10],big", [(n, n, {}) for n in ("gpu08", "gpu09", "gpu10", "big")]),
        ("[fd77::1]:22,", [("fd77-1", "fd77::1", {"port": 22})]),
        (
            "127.0.0.1:2201,127.0.0.1:2202",
            [
                ("127.0.0.1-2201", "127.0.0.1", {"port": 2201}),
                ("127.0.0.1-2202", "127.0.0.1", {"port": 2202}),
            ],
        ),
    ],
)
def test_list_of_hosts(text: str, expected: list[object]) -> None:
    hosts = read_list(text).hosts
    assert [(host.name, host.address, settings_as_yaml(host)) for host in hosts] == expected


def test_hosts_of_slurm_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[01-02,07],login1")
    assert names(read_list("@slurm")) == ["gpu01", "gpu02", "gpu07", "login1"]
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    with pytest.raises(ConfigError, match="no Slurm allocation"):
        read_list("@slurm")


def test_file_takes_precedence_over_list_with_same_text() -> None:
    Path("a,b").write_text("n7\n")
    assert names(read_list("a,b")) == ["n7"]


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("n1\nn2\n", {"n1": None, "n2": None}),
        ("# Open MPI\nn1 slots=2 max_slots=4\nn2 slots = 3 # big\n", {"n1": 2, "n2": 3}),
        ("n1:2\nn2:4\n", {"n1": 2, "n2": 4}),
        ("n1\nn1\nn2\nn1\n", {"n1": 3, "n2": None}),
        ("gpu[1-2] slots=8\n", {"gpu1": 8, "gpu2": 8}),
        ("n1 slots=2\nn1 slots=1\n", {"n1": 3}),
    ],
)
def test_hostfiles(text: str, slots: dict[str, int | None]) -> None:
    assert {host.name: host.slots for host in read("hostfile", text).hosts} == slots


def test_port_in_hostfile_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        read("hostfile", "n1 slots=2\nn2:2200\n")
    assert caught.value.where == "hostfile:2"
    assert "-i n2:2200," in caught.value.next


@pytest.mark.parametrize("line", ["n1 slots={}", "n1:{}"])
def test_number_of_5000_digits_in_hostfile_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="too large a number of workers"):
        read("hostfile", line.format("9" * 5000) + "\n")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("n1 slots=2\nn2 slots=2 python=/x/python\n", "hostfile:2", "python=/x/python"),
        ("n1 python=/x/python slots=1\n", "hostfile:1", "python=/x/python slots=1"),
        ("n1\n# n2\nn3 slots=two\n", "hostfile:3", "slots=two"),
        ("n1:2 gpu\n", "hostfile:1", "gpu"),
    ],
)
def test_unknown_word_in_hostfile_is_named_with_its_line(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("hostfile", text)
    assert caught.value.where == place
    assert caught.value.what == f"{words!r} cannot stand in a hostfile"
    assert "slots=2" in caught.value.next and "tfdeploy inventory --output" in caught.value.next


def test_wrong_number_of_slots_in_hostfile_names_slots() -> None:
    with pytest.raises(ConfigError) as failure:
        read("hostfile", "h1\nh2 slots=0\n")
    assert failure.value.what == "slots must be a whole number from 1 to 1024, not '0'"
    assert failure.value.where.endswith("hostfile:2")
    assert failure.value.next == "write it as in `slots=2`"


@pytest.mark.parametrize("text", ["h1:0,", "h1,h2:65536", "h1:123456,", "-x@h1,"])
def test_wrong_port_or_user_in_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not \[user@\]host\[:port\]") as failure:
        read_list(text)
    assert failure.value.next == "write it as ml@192.0.2.10:2200"


def test_host_that_is_listed_twice_is_named_as_written() -> None:
    for text, host in (("n1,n1", "n1"), ("n1:24,n1:24", "n1:24")):
        with pytest.raises(ConfigError, match=f"^{host} is named twice"):
            read_list(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.ini", "[worker]\nn1 ansible_port=70000\n"),
        ("h.yml", "all: {hosts: {n1: {ansible_port: 70000}}}\n"),
    ],
)
def test_wrong_value_names_the_variable_of_ansible(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(name, text)
    assert caught.value.what.startswith("ansible_port must be")
    assert caught.value.next == "write it as in `ansible_port=22`"


INI = """\
; a comment
login ansible_host=192.0.2.1

[worker]
gpu[01:03] ansible_user=ml   # ranges
big:2200 ansible_host=10.0.0.9

[ps]
p1 ansible_python_interpreter=auto

[train:children]
worker
ps

[train:vars]
ansible_user=all
ansible_ssh_private_key_file = "/keys/lab"
nothing_of_ours = {{ x }}
"""


def test_ansible_ini() -> None:
    inventory = read("hosts.ini", INI)
    assert names(inventory) == ["login", "gpu01", "gpu02", "gpu03", "big", "p1"]
    hosts = {host.name: settings_as_yaml(host) for host in inventory.hosts}
    key = {"identity_file": "/keys/lab"}
    assert hosts["login"] == {}
    assert hosts["gpu02"] == {"user": "ml", **key}
    assert hosts["big"] == {"user": "all", "port": 2200, **key}
    assert hosts["p1"] == {"user": "all", **key}
    assert inventory.roles == {"ps": ("p1",), "worker": ("gpu01", "gpu02", "gpu03", "big")}
    assert (
        inventory.host("gpu01").setting_with_place("identity_file")
        == "`identity_file:` (hosts.ini:17)"
    )


def test_ansible_ini_without_variables() -> None:
    inventory = read("hosts.ini", "[ps]\nn1\n\n[worker]\nn2\nn3\n")
    assert names(inventory) == ["n1", "n2", "n3"]
    assert inventory.roles == {"ps": ("n1",), "worker": ("n2", "n3")}


def test_misspelt_ansible_variable_is_named_with_line() -> None:
    inventory = read(
        "h.ini", "[worker]\nn1 ansible_prt=22 ansible_become=yes\nn2 ansible_port=22\n"
    )
    assert inventory.notes == (
        "h.ini:2: the variable ansible_prt has no effect: did you mean ansible_port?",
    )


YAML = """\
all:
  vars: {ansible_user: ml}
  children:
    chief:
      hosts: {c1: {ansible_host: 10.0.0.8}}
    workers:
      vars: {ansible_port: 2200}
      hosts:
        db-[a:b]:
        g[1:5:2]: {ansible_port: 2201}
"""


def test_ansible_yaml() -> None:
    inventory = read("hosts.yml", YAML)
    assert names(inventory) == ["c1", "db-a", "db-b", "g1", "g3", "g5"]
    assert inventory.host("c1").address == "10.0.0.8"
    assert {host.port for host in inventory.hosts} == {None, 2200, 2201}
    assert {host.user for host in inventory.hosts} == {"ml"}
    assert inventory.roles == {"chief": ("c1",), "worker": ("db-a", "db-b", "g1", "g3", "g5")}


def nested_groups(depth: int) -> str:
    """Return an inventory in which each of `depth` groups has the group below it twice, by an
    alias."""
    groups = ["g0: &g0 {hosts: {n1: }}"] + [
        f"g{n}: &g{n} {{children: {{a{n}: *g{n - 1}, b{n}: *g{n - 1}}}}}" for n in range(1, depth)
    ]
    return f"x: {{vars: {{{', '.join(groups)}}}}}\nall: *g{depth - 1}\n"


def test_groups_of_aliases_take_no_exponential_time() -> None:
    assert names(read("hosts.yml", nested_groups(30))) == ["n1"]


def test_deeply_nested_groups_of_aliases_are_refused() -> None:
    with pytest.raises(ConfigError, match="nested more than 32 levels deep"):
        read("hosts.yml", nested_groups(2000))


def test_variable_files_next_to_ansible_inventory() -> None:
    inventory = read(
        "hosts",
        "[worker]\nn1 ansible_user=own\nn2\n",
        group_vars__all="ansible_port: 2200\n",
        group_vars__worker="ansible_user: group\n",
        host_vars__n1="ansible_port: 2201\n",
    )
    assert [settings_as_yaml(host) for host in inventory.hosts] == [
        {"user": "own", "port": 2201},
        {"user": "group", "port": 2200},
    ]


def test_variable_files_without_content_and_the_newer_of_two_names() -> None:
    inventory = read(
        "hosts",
        "[worker]\nn1 ansible_host=192.0.2.1 ansible_ssh_host=192.0.2.2\n",
        group_vars__all="---\n# nothing yet\n",
        group_vars__worker="",
    )
    assert inventory.host("n1").address == "192.0.2.1"


def test_groups_with_shared_children_are_read_quickly() -> None:
    levels = [f"[a{n}:children]\na{n + 1}\nb{n + 1}\n" for n in range(60)]
    levels += [f"[b{n}:children]\na{n + 1}\nb{n + 1}\n" for n in range(60)]
    text = "".join(levels) + "[a60]\nn1\n[worker:children]\na0\n"
    assert read("hosts", text).roles == {"worker": ("n1",)}


def test_job_file_may_name_list_of_hosts() -> None:
    Path("tfdeploy.yaml").write_text("inventory: n1,n2\n")
    job = load_job(Path.cwd() / "tfdeploy.yaml", environ={})
    inventory_path = find_inventory(None, {}, job.inventory, Path.cwd())
    assert names(load_inventory(inventory_path.path)) == ["n1", "n2"]


@pytest.mark.parametrize(
    "args",
    [
        "-J ops@login",
        "-o ProxyJump=ops@login",
        '-o StrictHostKeyChecking=no -o ProxyCommand="ssh -W %h:%p -q ops@login"',
        '-o ProxyCommand="ssh -q -W [%h]:%p ops@login"',
        '-o ProxyCommand="ssh ops@login -W %h:%p"',
        '-o ProxyCommand="ssh -l ops login -W %h:%p"',
    ],
)
def test_jump_host_of_ansible(args: str) -> None:
    inventory = read("hosts", f"[worker]\nn1\n[worker:vars]\nansible_ssh_common_args='{args}'\n")
    assert inventory.host("n1").jump == "ops@login"


@pytest.mark.parametrize(
    "file, known_hosts", [("/etc/ssh/lab_hosts", "/etc/ssh/lab_hosts"), ("/dev/null", None)]
)
def test_known_hosts_file_of_ansible(file: str, known_hosts: str | None) -> None:
    args = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={file}"
    inventory = read("hosts", f"[worker]\nn1 ansible_ssh_common_args='{args}'\n")
    assert inventory.host("n1").known_hosts == known_hosts


@pytest.mark.parametrize(
    ("name", "text", "where", "words"),
    [
        ("h", "[all]\nn1 ansible_host={{x}}\n", "h:2", "template"),
        ("h", "[all]\nn1 ansible_connection=local\n", "h:2", "SSH only"),
        ("h", "[all]\nn1 n2\n", "h:2", "is not NAME=VALUE"),
        ("h", "n1 ansible_port=1\n[workers\nn2\n", "h:2", r"header \[workers has no closing"),
        ("h", "[a:b]\nn1\n", "h:1", "unknown kind of section 'b'"),
        ("h", '[all]\nn1 ansible_user="ml\n', "h:2", "cannot be split"),
        ("h", "[a:children]\na\n", "h:1", "contains itself"),
        ("h", "[all]\nn[1:2:3:4]\n", "h:2", "cannot read the range"),
        ("h", f"[all]\nn[1:9:{'9' * 5000}]\n", "h:2", "cannot read the range"),
        ("h", f"[all]\n{'[]' * 60}x\n", "h:2", "is not a range"),
        ("h", "[all]\nn[1:9000][1:9000]\n", "h:2", "more than 10,000 names"),
        (
            "h",
            "[all]\nn1\n[all:vars]\nansible_ssh_common_args='-o ProxyCommand=\"nc %h\"'\n",
            "h:4",
            "ProxyCommand",
        ),
        (
            "h",
            '[all]\nn1\n[all:vars]\nansible_ssh_common_args=\'-o ProxyCommand="ssh \\\\"x"\'\n',
            "h:4",
            "cannot be split",
        ),
        ("h.yml", "plugin: aws_ec2\nregions: [x]\n", "h.yml:1:plugin", "plugin of Ansible"),
        ("h.yml", "all:\n  hosts: {n1: {x: !vault abc}}\n", "h.yml:2", "!vault"),
        (
            "h.yml",
            "all:\n  host: {n1: }\n  hosts: {n2: }\n",
            "h.yml:2:all.host",
            "cannot have 'host'",
        ),
    ],
)
def test_unsupported_line_is_refused_with_its_number(
    name: str, text: str, where: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(name, text)
    assert caught.value.where == where


def test_name_without_file_may_be_host() -> None:
    with pytest.raises(ConfigError) as caught:
        read_list("n1")
    assert "-i n1," in caught.value.next


def test_listed_ipv6_address_needs_brackets_only_before_port() -> None:
    inventory = read_list("::1,ml@2001:db8::5,[2001:db8::6]:2200")
    assert [(host.address, host.user, host.port) for host in inventory.hosts] == [
        ("::1", None, None),
        ("2001:db8::5", "ml", None),
        ("2001:db8::6", None, 2200),
    ]
    with pytest.raises(ConfigError, match="'1:2:3' is not"):
        read_list("1:2:3,")
