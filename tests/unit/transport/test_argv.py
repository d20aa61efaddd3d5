"""Test which arguments ssh, rsync and remote shells get, and how the output of rsync is read.

The tested functions start no process.
"""

from __future__ import annotations

import shlex
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed, HostUnreachable, Refused
from tfdeploy.transport.agent import archive, bootstrap
from tfdeploy.transport.agent.frames import Frames
from tfdeploy.transport.quoting import command_line
from tfdeploy.transport.rsync import messages
from tfdeploy.transport.rsync.transfer import push_argv
from tfdeploy.transport.ssh.argv import quote_for_rsync, shell_argv, ssh_argv
from tfdeploy.transport.ssh.target import Target

TARGET = Target(
    hostname="192.0.2.1",
    port=2200,
    user="ml",
    identity_files=("/home/a b/key",),
    identities_only=True,
    user_known_hosts=("/k/known hosts",),
    global_known_hosts=("/etc/g",),
    name="n1",
)


def test_ssh_gets_whole_target_and_no_configuration() -> None:
    words = ssh_argv(TARGET)
    assert words[:3] == ("ssh", "-F", "none")
    assert words[words.index("-p") + 1] == "2200"
    assert words[words.index("-l") + 1] == "ml"
    for setting in (
        "HostName=192.0.2.1",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        'IdentityFile="/home/a b/key"',
        'UserKnownHostsFile="/k/known hosts"',
        "GlobalKnownHostsFile=/etc/g",
    ):
        assert words[words.index(setting) - 1] == "-o"


def test_missing_known_hosts_is_dev_null() -> None:
    """Test that ssh gets /dev/null if there is no known_hosts file. The word `none` would not work,
    because an older ssh treats it as a file name.
    """
    words = ssh_argv(Target(hostname="a", port=22, user="u"))
    assert {
        "UserKnownHostsFile=/dev/null",
        "GlobalKnownHostsFile=/dev/null",
        "CheckHostIP=no",
    } <= set(words)


def test_jumps_nest_and_percent_signs_are_kept() -> None:
    first = Target(hostname="a", port=22, user="u", identity_files=("/k/100%",))
    second = Target(hostname="fe80::1", port=23, user="v", jump=first)
    words = ssh_argv(Target(hostname="c", port=24, user="w", jump=second))
    proxy = next(word for word in words if word.startswith("ProxyCommand="))[13:]
    outer = shlex.split(proxy.replace("%%", "%"))
    assert outer[-3:] == ["-W", "c:24", "jump"]
    inner = next(word for word in outer if word.startswith("ProxyCommand="))[13:]
    nested = shlex.split(inner.replace("%%", "%"))
    assert nested[-3:] == ["-W", "[fe80::1]:23", "jump"]
    assert "IdentityFile=/k/100%%" in nested


def test_shell_gets_same_words_and_terminal_only_if_present() -> None:
    plain = shell_argv(TARGET, (), terminal=False)
    assert plain == (*ssh_argv(TARGET), "--", "n1")
    assert "-t" in shell_argv(TARGET, (), terminal=True)
    assert "-T" not in shell_argv(TARGET, (), terminal=True)
    assert shell_argv(TARGET, ("ls", "-l"), terminal=False)[-2:] == ("n1", "exec ls -l")


def test_quoting_for_rsync() -> None:
    assert quote_for_rsync(("ssh", "-o", "A='b' c")) == "'ssh' '-o' 'A=''b'' c'"


def test_arguments_of_rsync_cannot_become_options() -> None:
    words = push_argv("/tree", "/there", in_place=False)
    assert words[-3:] == ["--", "/tree/", "target:/there/"]
    assert "--from0" in words
    for bad in ("there", "-e", "", "/a\nb"):
        with pytest.raises(Refused):
            push_argv("/tree", bad, in_place=True)


@pytest.mark.parametrize(
    ("code", "output", "kind", "words"),
    [
        (
            11,
            b'rsync: write failed on "/x/big": No space left on device (28)\n',
            HostFailed,
            "full",
        ),
        (23, b"rsync: mkdir: Disk quota exceeded (122)\n", HostFailed, "full"),
        (127, b"bash: line 1: rsync: command not found\n", Refused, "rsync is missing"),
        (
            12,
            b"sh: 1: rsync: not found\nrsync: connection unexpectedly closed",
            Refused,
            "rsync is missing",
        ),
        (255, b"Host key verification failed.\nrsync: connection", HostUnreachable, "host key"),
        (
            255,
            b"Permissions 0644 for '/k/id' are too open.\nml@h: Permission denied (publickey).\n",
            HostUnreachable,
            "key /k/id, because other users can read it",
        ),
        (255, b"ml@h: Permission denied (publickey).\n", HostUnreachable, "cannot log in"),
        (12, b"rsync: connection unexpectedly closed (0 bytes)\n", HostUnreachable, "broke off"),
        (30, b"timeout\n", HostUnreachable, "broke off"),
        (23, b"rsync: \x1b[31mopendir failed\n", HostFailed, "ended with 23"),
        (23, b"rsync: failed to open: Permission denied (13)\n", HostFailed, "failed to open"),
        (1, b"rsync: --foo: unknown option\n", Refused, "incompatible"),
    ],
)
def test_output_of_rsync_gives_one_cause(code: int, output: bytes, kind: type, words: str) -> None:
    error = messages.explain(code, output, TARGET, "/tree")
    assert type(error) is kind
    assert words in error.what
    assert "\x1b" not in error.what
    assert error.where == "n1"


def test_error_about_host_key_names_command_to_renew_or_record() -> None:
    end = b"Host key verification failed.\r\n"
    changed = b"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n" + end
    assert str(messages.explain(255, changed, TARGET, "/tree").next).endswith(
        "`tfdeploy trust --renew n1`"
    )
    assert messages.explain(255, end, TARGET, "/tree").next == "`tfdeploy trust --limit n1`"


def test_progress_and_totals() -> None:
    line = b"      1238099  12%  140.91kB/s    0:00:08 (xfr#5, to-chk=169/396)"
    assert messages.parse_progress(line) == 1238099
    assert messages.parse_progress(b"sending incremental file list") is None
    assert messages.parse_totals(b"sent 123 bytes  received 45 bytes  67.00 bytes/sec") == (123, 45)
    assert messages.is_refused_before_login(
        255, b"kex_exchange_identification: read: Connection reset by peer"
    )
    assert not messages.is_refused_before_login(255, b"Permission denied (publickey)")


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
        min_size=1,
        max_size=4,
    )
)
def test_any_words_reach_host_unchanged(words: list[str]) -> None:
    line = command_line(("printf", "%s\\0", *words))
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
    assert done.stdout == b"".join(word.encode() + b"\0" for word in words)


def test_byte_that_is_not_utf8_reaches_host_unchanged() -> None:
    for words in (("printf", "%s", "\udcff\udc80x"), ("printf %s '\udcff\udc80x'",)):
        line = command_line(words).encode()
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
        assert done.stdout == b"\xff\x80x"


def test_key_exchanges_are_defaults_of_client_without_slow_one() -> None:
    words = ["ssh", "-G", "-F", "none", "localhost"]
    kept = next(word for word in ssh_argv(TARGET) if word.startswith("KexAlgorithms="))
    before, after = (
        subprocess.run(
            [*words, *options], capture_output=True, check=True, text=True
        ).stdout.partition("kexalgorithms ")[2]
        for options in ([], ["-o", kept])
    )
    exchanges = [
        name for name in before.split("\n")[0].split(",") if not name.startswith("sntrup761")
    ]
    assert after.split("\n")[0].split(",") == exchanges


def test_bootstrap_works_in_every_shell() -> None:
    for python in ("python3", "~/my env/bin/python"):
        inside = bootstrap.command(python).removeprefix("exec /bin/sh -c '").removesuffix("'")
        assert not set("'\\!\n") & set(inside)
    for odd in ("a;b", "$(x)", "it's", 'a"b', "a\\b", "x!", "a\nb", ""):
        with pytest.raises(Refused):
            bootstrap.command(odd)


def test_equal_agents_have_equal_names_and_others_have_other_names() -> None:
    files = {"a": b"1", "b": b""}
    assert archive.join_files(files) == archive.join_files(dict(reversed(files.items())))
    others = [
        {"a": b"2", "b": b""},
        {"a": b"1"},
        {"a": b"1b"},
        {"a": b"", "b": b"1"},
        {"a": b"1", "c": b""},
    ]
    names = {archive.hash_joined_files(archive.join_files(each)) for each in [files, *others]}
    assert len(names) == len(others) + 1
    assert archive.agent_name() == archive.agent_name()


def test_agent_has_its_sources_and_no_caches() -> None:
    paths = [path for path, _ in archive.agent_files()]
    assert {
        "__main__.py",
        "tfdeploy/__init__.py",
        "tfdeploy/errors.py",
        "tfdeploy/agent/serve/server.py",
    } <= set(paths)
    assert not [path for path in paths if "__pycache__" in path or not path.endswith(".py")]


@given(
    st.lists(
        st.tuples(st.dictionaries(st.text(), st.integers()), st.binary(max_size=50)), max_size=6
    ),
    st.integers(1, 40),
)
def test_frames_are_read_from_any_chunks(
    sent: list[tuple[dict[str, int], bytes]], size: int
) -> None:
    data = b"".join(frames.encode_frame(header, blob) for header, blob in sent)
    reader = Frames(data[:size])
    pairs_found = list(reader.complete_frames())
    for offset in range(size, len(data), size):
        reader.feed(data[offset : offset + size])
        pairs_found += reader.complete_frames()
    assert [(frame.header, frame.blob) for frame in pairs_found] == sent


def frame_of(text: bytes) -> bytes:
    return struct.pack("!II", len(text), 0) + text


NOT_OURS = [b"[]", b"{{", b'{"id": NaN}', b'{"id": -Infinity}', b'{"id": "\xff"}', b"9" * 50_000]
TOO_DEEP = [b"[" * 100_000, b'{"a": ' * 100_000]


@pytest.mark.parametrize(
    "foreign", [b"HTTP/1.1 400 Bad Request", *map(frame_of, NOT_OURS + TOO_DEEP)]
)
def test_foreign_bytes_are_refused(foreign: bytes) -> None:
    with pytest.raises(frames.WireError):
        list(Frames(foreign).complete_frames())


DENIED = b'rsync: [sender] send_files failed to open "/w/x": Permission denied (13)\n'
END = b"rsync error: some files/attrs were not transferred (code 23) at main.c(1865)\n"


@pytest.mark.parametrize(
    ("code", "stderr", "only"),
    [
        (23, DENIED + END, True),
        (23, DENIED.replace(b"[sender] ", b"") + END, True),
        (23, DENIED + b'rsync: [receiver] mkstemp "/x" failed: Permission denied (13)\n', False),
        (23, b'file has vanished: "/w/y"\n' + DENIED + END, True),
        (23, b'file has vanished: "/w/y"\n' + END, False),
        (23, END, False),
        (12, DENIED, False),
    ],
)
def test_unreadable_files_are_told_from_other_errors(code: int, stderr: bytes, only: bool) -> None:
    assert messages.has_only_unreadable(code, stderr) == only
