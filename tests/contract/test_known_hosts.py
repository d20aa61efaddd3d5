"""Test that tfdeploy and OpenSSH accept and refuse the same host keys, with one sshd and many
known_hosts files.

tfdeploy's session and the ssh that rsync starts must always agree. The user's own ssh must agree
with both, with one exception: only the user's ssh accepts a host that is known only by a
certificate.
"""

from __future__ import annotations

import base64
import hmac
import os
import random
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.lab.sshd import without_penalties
from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.argv import ssh_argv
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.host_keys import known_hosts
from tfdeploy.transport.ssh.target import Target, resolve

LINES = int(os.environ.get("TFDEPLOY_SOAK_KNOWN_LINES", "4000"))
KINDS = ("ed25519", "ecdsa", "rsa")
OPENSSH_MESSAGES = (
    ("cannot be read", "revoked"),
    ("Error checking", "revoked"),
    ("revoked", "revoked"),
    ("HAS CHANGED", "changed"),
    ("has changed", "changed"),
    ("No ", "new"),
    ("is not known", "new"),
)


def hashed_name(name: str, salt: bytes) -> str:
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@dataclass(frozen=True)
class Shown:
    """The sshds of the tests, and host keys.

    `hosts` has one sshd for each set of host keys: `all` has all kinds of key, `rsa` only an RSA
    key, `older` the older kinds, and `certified` a host certificate. `keys` has public keys in the
    form of a line in known_hosts: these host keys, a wrong key of each kind, and the key of the
    certificate authority.
    """

    hosts: dict[str, Any]
    keys: dict[str, str]
    folder: Path


def _key(folder: Path, name: str, kind: str) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(folder / name)], check=True)
    return " ".join((folder / f"{name}.pub").read_text().split()[:2])


@pytest.fixture(scope="module")
def shown(shared_ssh_hosts: Any) -> Shown:
    folder = shared_ssh_hosts.root
    names = {
        **{kind: kind for kind in KINDS},
        **{f"wrong_{kind}": kind for kind in KINDS},
        "ca": "ed25519",
    }
    keys = {name: _key(folder, name, kind) for name, kind in names.items()}
    sign = [
        "ssh-keygen",
        "-q",
        "-s",
        str(folder / "ca"),
        "-h",
        "-I",
        "host",
        str(folder / "ed25519.pub"),
    ]
    subprocess.run(sign, check=True)
    options = [f"HostKey {folder / kind}" for kind in KINDS]
    # The tests refuse host keys about a hundred times, and sshd must not punish that.
    often = without_penalties()
    hosts = {
        "all": shared_ssh_hosts.host("of-all-kinds", *often, *options),
        "older": shared_ssh_hosts.host(
            "older", *often, *options, "HostKeyAlgorithms ecdsa-sha2-nistp256,rsa-sha2-512"
        ),
        "certified": shared_ssh_hosts.host(
            "certified", *often, *options, f"HostCertificate {folder / 'ed25519-cert.pub'}"
        ),
        "rsa": shared_ssh_hosts.host(
            "of-rsa", *often, options[2], "HostKeyAlgorithms rsa-sha2-512"
        ),
    }
    return Shown(hosts, keys, folder)


# {name of a case: (lines of known_hosts, name of the sshd, state of its key according to OpenSSH)}.
# In the lines, {at} stands for [127.0.0.1]:port, and {hash} for the hashed form of {at}.
CASES = {
    "plain": ("{at} {ed25519}", "all", "known"),
    "wrong": ("{at} {wrong_ed25519}", "all", "changed"),
    "empty": ("", "all", "new"),
    "another host": ("other {ed25519}", "all", "new"),
    "hashed": ("{hash} {ed25519}", "all", "known"),
    "hashed wrong": ("{hash} {wrong_ed25519}", "all", "changed"),
    "hashed without its port": ("{bare_hash} {rsa}", "rsa", "known"),
    "hash of another form": ("|1|YWJj|YWJj {ed25519}", "all", "new"),
    "bare name": ("127.0.0.1 {ed25519}", "all", "known"),
    "bare name, wrong": ("127.0.0.1 {wrong_ed25519}", "all", "new"),
    "bare name, another kind is asked for": ("127.0.0.1 {rsa}", "all", "new"),
    "bare name beside a wrong one": ("{at} {wrong_ed25519}\n127.0.0.1 {ed25519}", "all", "changed"),
    "bare name beside a revoked one": (
        "@revoked {at} {wrong_ed25519}\n127.0.0.1 {ed25519}",
        "all",
        "known",
    ),
    "bare name, revoked": ("@revoked 127.0.0.1 {ed25519}\n127.0.0.1 {ed25519}", "all", "revoked"),
    "pattern": ("[127.0.0.?]:* {ed25519}", "all", "known"),
    "pattern of another port": ("[127.0.0.*]:1 {ed25519}", "all", "new"),
    "negation": ("!{at},[* {ed25519}", "all", "new"),
    "negation behind": ("[*,!{at} {ed25519}", "all", "new"),
    "negation of another": ("!other,* {ed25519}", "all", "known"),
    # The negation excludes only the name with the port. ssh also looks for the name without the
    # port, and the pattern * matches this name.
    "negation of one name": ("!{at},* {ed25519}", "all", "known"),
    "two exclamation marks": ("!!{at},* {ed25519}", "all", "known"),
    "several names": ("a,b,{at} {ed25519} comment", "all", "known"),
    "wrong, then right": ("{at} {wrong_ed25519}\n{at} {ed25519}", "all", "known"),
    "rsa alone": ("{at} {rsa}", "all", "known"),
    "rsa, named otherwise": ("{at} rsa-sha2-256 {rsa_blob}", "all", "known"),
    "ecdsa alone": ("{at} {ecdsa}", "all", "known"),
    "rsa right, ed25519 wrong": ("{at} {rsa}\n{at} {wrong_ed25519}", "all", "changed"),
    "rsa right, ecdsa wrong": ("{at} {rsa}\n{at} {wrong_ecdsa}", "all", "changed"),
    "ed25519 known, rsa shown": ("{at} {ed25519}", "rsa", "changed"),
    "ed25519 and rsa known, rsa shown": ("{at} {ed25519}\n{at} {rsa}", "rsa", "known"),
    "ed25519 and rsa known, ecdsa and rsa shown": (
        "{at} {ed25519}\n{at} {rsa}",
        "older",
        "changed",
    ),
    "revoked": ("@revoked {at} {ed25519}\n{at} {ed25519}", "all", "revoked"),
    "revoked everywhere": ("{at} {ed25519}\n@revoked * {ed25519}", "all", "revoked"),
    "another is revoked": ("{at} {ed25519}\n@revoked * {rsa}", "all", "known"),
    "the one kind is revoked": ("{at} {rsa}\n@revoked * {rsa}", "all", "changed"),
    "revoked behind a tab": ("@revoked\t{at} {ed25519}\n{at} {ed25519}", "all", "known"),
    "revoked on another host": ("@revoked other {ed25519}\n{at} {ed25519}", "all", "known"),
    "marker unknown": ("@trusted {at} {ed25519}", "all", "new"),
    "certificate": ("@cert-authority * {ca}", "certified", "a certificate"),
    "certificate of another authority": ("@cert-authority * {wrong_ed25519}", "certified", "new"),
    "certificate and key": ("@cert-authority * {ca}\n{at} {ed25519}", "certified", "known"),
    "certificate and rsa": ("@cert-authority * {ca}\n{at} {rsa}", "certified", "known"),
    "certificate, and a wrong key": (
        "@cert-authority * {ca}\n{at} {wrong_ed25519}",
        "certified",
        "a certificate, else changed",
    ),
    "certificate where there is none": ("@cert-authority * {ca}", "rsa", "new"),
    "the authority is revoked": (
        "@cert-authority * {ca}\n@revoked * {ca}\n{at} {ed25519}",
        "certified",
        "a revoked certificate",
    ),
    "CRLF": ("# x\r\n{at} {ed25519}\r\n", "all", "known"),
    "CR alone": ("x\r{at} {ed25519}", "all", "new"),
    "no newline, tabs, blanks before": ("\t {at}\t{ed25519}", "all", "known"),
    "blanks of other kinds": ("{at}\x0b{ed25519}", "all", "new"),
    "garbage before": (
        "\x00\xff\xfe\n{at}\n{at} ssh-ed25519\n{at} ssh-ed25519 %%%\n@\n|1|\n{at} {ed25519}",
        "all",
        "known",
    ),
    "garbage alone": ("{at} ssh-ed25519 {rsa_blob}", "all", "new"),
    "a key cut short": ("{at} {cut}", "all", "new"),
    "a line of 1 MB": ("x,{long}{at} {ed25519}\n", "all", "known"),
    "a line of 1 MB before": ("{long}\n{at} {ed25519}\n", "all", "known"),
    "a name of 2,000 letters": ("{word},{at} {ed25519}", "all", "new"),
}
CERTIFIED = {
    "a certificate": ("new", "new", "known"),
    "a certificate, else changed": ("changed", "changed", "known"),
    "a revoked certificate": ("known", "known", "revoked"),
}


def lines_of(text: str, shown: Shown, port: int) -> bytes:
    address = f"[127.0.0.1]:{port}"
    words = {
        "at": address,
        "hash": hashed_name(address, b"s" * 20),
        "bare_hash": hashed_name("127.0.0.1", b"t" * 20),
        "rsa_blob": shown.keys["rsa"].split()[1],
        "cut": shown.keys["ed25519"][:-8],
        "long": "n1.example.org," * 70_000,
        "word": "x" * 2_000,
    }
    return text.format_map({**shown.keys, **words}).encode("latin-1")


def session_report(host: Any) -> tuple[str, str]:
    """Return (state of the host key, error message) of a login by tfdeploy. The message is "" if
    the login succeeds.
    """
    connector = Connector()
    try:
        connector.connect(host.name, resolve(host)).close()
    except HostUnreachable as error:
        return next(state for word, state in OPENSSH_MESSAGES if word in error.what), error.what
    finally:
        connector.close()
    return "known", ""


def ssh_report(words: list[str], folder: Path | None = None) -> str:
    """Run the ssh command in `folder`, and return the state of the host key that ssh reports."""
    words = [*words, "true"]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        return "known"
    return next((state for word, state in OPENSSH_MESSAGES if word in done.stderr), done.stderr)


def rsync_s_ssh(target: Target) -> list[str]:
    return [*ssh_argv(target), "--", "target"]


def users_ssh(target: Target) -> list[str]:
    """Return the ssh command of a user who has tfdeploy's known_hosts files and accepts only
    known host keys.
    """
    files = [
        f"UserKnownHostsFile={' '.join(target.user_known_hosts)}",
        "GlobalKnownHostsFile=/dev/null",
    ]
    options = [
        *files,
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "UpdateHostKeys=no",
    ]
    # This key exchange is three times as fast as OpenSSH's default.
    options.append("KexAlgorithms=curve25519-sha256")
    words = [
        "ssh",
        "-F",
        "none",
        "-p",
        str(target.port),
        "-l",
        target.user,
        "-i",
        target.identity_files[0],
    ]
    return [*words, *(word for option in options for word in ("-o", option)), "127.0.0.1"]


def all_reports(host: Any) -> tuple[str, str, str]:
    """Return what three programs report about the host key: tfdeploy's own session, the ssh that
    rsync starts, and the ssh that the user starts.
    """
    target = resolve(host)
    return session_report(host)[0], ssh_report(rsync_s_ssh(target)), ssh_report(users_ssh(target))


def test_session_rsync_and_ssh_agree_on_every_known_hosts_file(
    shown: Shown, tmp_path: Path
) -> None:
    def ask(number: int, text: str, sshd_name: str) -> tuple[str, str, str]:
        host = shown.hosts[sshd_name].host
        path = tmp_path / f"known-{number}"
        path.write_bytes(lines_of(text, shown, host.port))
        return all_reports(replace(host, known_hosts=str(path)))

    with ThreadPoolExecutor(4) as pool:
        reports = dict(
            zip(
                CASES,
                pool.map(
                    ask,
                    range(len(CASES)),
                    *zip(*((c[0], c[1]) for c in CASES.values()), strict=True),
                ),
                strict=True,
            )
        )
    expected = {name: CERTIFIED.get(state, (state,) * 3) for name, (_, _, state) in CASES.items()}
    assert reports == expected


def test_all_agree_on_missing_unusual_and_foreign_files(shown: Shown, tmp_path: Path) -> None:
    host = shown.hosts["all"].host
    right = lines_of("{at} {ed25519}\n", shown, host.port)
    for name in ("writable", "unreadable", "target of a link"):
        (tmp_path / name).write_bytes(right)
    (tmp_path / "writable").chmod(0o666)
    (tmp_path / "unreadable").chmod(0)
    (tmp_path / "link").symlink_to("target of a link")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    files = {
        "writable": "known",
        "link": "known",
        "target of a link": "known",
        "loop": "new",
        "folder": "new",
        "missing": "new",
    }
    files["writable/below a file"] = "new"
    files["unreadable"] = "known" if os.access(tmp_path / "unreadable", os.R_OK) else "new"
    for name, state in files.items():
        target_host = replace(host, known_hosts=str(tmp_path / name))
        assert (session_report(target_host)[0], ssh_report(rsync_s_ssh(resolve(target_host)))) == (
            state,
            state,
        ), name


@pytest.mark.parametrize(
    ("address", "name", "state"),
    [
        # ssh normalises an address before it searches known_hosts for it.
        ("127.1", "127.0.0.1", "known"),
        ("127.1", "127.1", "new"),
        ("::FFFF:7f00:1", "::ffff:127.0.0.1", "known"),
        ("::FFFF:7f00:1", "::ffff:7f00:1", "new"),
        ("LocalHost", "localhost", "known"),
    ],
)
def test_address_is_looked_up_in_normalised_form(
    shown: Shown, tmp_path: Path, address: str, name: str, state: str
) -> None:
    sshd = shown.hosts["all"].host
    (tmp_path / "known").write_text(f"[{name}]:{sshd.port} {shown.keys['ed25519']}\n")
    host = replace(sshd, address=address, known_hosts=str(tmp_path / "known"))
    target = resolve(host)
    assert (
        session_report(host)[0],
        ssh_report(rsync_s_ssh(target)),
        ssh_report([*users_ssh(target)[:-1], address]),
    ) == (state,) * 3


NAMES = [
    b"n1",
    b"N1",
    b"n2",
    b"n*",
    b"*",
    b"!n1",
    b"!n2",
    b"!!n1",
    b"n?",
    b"n[1]",
    b"[n1]:22",
    b"",
    b"n1\x0b",
    b"**",
    b"#n1",
    b"@n1",
    b"|n1",
]
LONG_NAMES = [bang + b"a" * count for bang in (b"", b"!") for count in (1021, 1022, 1023, 1024)]
BLANKS = [b" "] * 5 + [b"\t", b"  ", b" \t ", b"\x0b", b"\xa0", b"\r", b""]
STARTS = [b""] * 5 + [
    b" ",
    b"\t",
    b"#",
    b"\r",
    b"@",
    b"@x ",
    b"@revoked ",
    b"@revoked\t",
    b"@cert-authority  ",
    b"@revoked @revoked ",
]
KINDS_OF_KEY = [
    b"ssh-rsa",
    b"ssh-ed25519",
    b"rsa-sha2-256",
    b"ecdsa-sha2-nistp384",
    b"foo",
    b"SSH-RSA",
    b"1024",
]
INSIDE = [b"\r", b"\x0b", b"=", b"%", b"\0", b"A", b"AA==", b"AAAA", b",", b"|"]
ENDS = [b""] * 3 + [b" comment", b"\r", b" c\0d", b"\t", b"#"]


def random_line(chance: random.Random, keys: list[bytes]) -> bytes:
    """Return a random line of known_hosts, valid or almost valid.

    The base64 text of a key is never changed, because only OpenSSH notices that the point of a
    changed key is not on the curve.
    """
    kind, key = chance.choice(keys).split()
    kind = chance.choice(KINDS_OF_KEY) if chance.random() < 0.15 else kind
    names = b",".join(chance.choices(NAMES + LONG_NAMES, k=chance.choice([1, 1, 2, 3, 4])))
    if chance.random() < 0.25:
        names = hashed_name(
            chance.choice(["n1", "n2"]), b"s" * chance.choice([19, 20, 20, 20, 21])
        ).encode()
    words = [names, chance.choice(BLANKS), kind, chance.choice(BLANKS), key]
    if chance.random() < 0.4:
        index = chance.choice([0, 4])
        offset = chance.randrange(len(words[index]) + 1)
        words[index] = (
            words[index][:offset]
            + chance.choice(INSIDE)
            + words[index][offset + chance.choice([0, 900]) :]
        )
    return b"".join([chance.choice(STARTS), *words, chance.choice(ENDS)])


def test_random_lines_match_ssh_keygen(shown: Shown, tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    chance, path = random.Random(seed), tmp_path / "known"
    keys = [key.encode() for key in shown.keys.values()]
    lines = [random_line(chance, keys) for _ in range(LINES)]
    path.write_bytes(b"\n".join(lines))
    words = ["ssh-keygen", "-l", "-F", "n1", "-f", str(path)]
    output = subprocess.run(words, capture_output=True, timeout=60, check=False).stdout
    lines_of_ssh_keygen = {
        int(number) for number in re.findall(rb"^# Host n1 found: line (\d+)", output, re.MULTILINE)
    }
    lines_of_tfdeploy = {key.line for key in known_hosts.find([str(path)], "n1")}
    assert len(lines_of_ssh_keygen) > LINES // 50
    assert [lines[number - 1] for number in lines_of_ssh_keygen ^ lines_of_tfdeploy] == [], (
        f"seed {seed}"
    )


def test_host_with_only_certificate_is_refused_with_reason(shown: Shown, tmp_path: Path) -> None:
    host = shown.hosts["all"].host
    (tmp_path / "known").write_bytes(lines_of("@cert-authority * {ca}", shown, host.port))
    message = session_report(replace(host, known_hosts=str(tmp_path / "known")))[1]
    assert (
        f"{tmp_path}/known:1 has a @cert-authority line for this host, but tfdeploy checks no host "
        "certificates" in message
    )


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes `~/.ssh/config` for the operator. The operator has no other
    configuration of ssh.
    """
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KNOWN", "of-the-environment")

    def write(text: str) -> None:
        (tmp_path / ".ssh/config").write_text(f"Host *\n{text}\n")
        ssh_config.read_settings.cache_clear()
        ssh_config._has_relevant_keyword.cache_clear()

    return write


@pytest.mark.parametrize(
    ("config", "file", "line", "state"),
    [
        ("UserKnownHostsFile {home}/one {home}/two", "two", "{at} {ed25519}", "known"),
        ('UserKnownHostsFile "{home}/a b" {home}/c', "a b", "{at} {ed25519}", "known"),
        ('UserKnownHostsFile "{home}/a b" {home}/c', "c", "{at} {ed25519}", "known"),
        ('UserKnownHostsFile "{home}/o\'brien"', "o'brien", "{at} {ed25519}", "known"),
        ("UserKnownHostsFile {home}/%h-%p", "127.0.0.1-{port}", "{at} {ed25519}", "known"),
        ("UserKnownHostsFile {home}/${{KNOWN}}", "of-the-environment", "{at} {ed25519}", "known"),
        (
            "UserKnownHostsFile none\nGlobalKnownHostsFile {home}/global",
            "global",
            "{at} {ed25519}",
            "known",
        ),
        ("UserKnownHostsFile none", ".ssh/known_hosts", "{at} {ed25519}", "new"),
        ("UserKnownHostsFile none", "none", "{at} {ed25519}", "new"),
        (
            "UserKnownHostsFile /dev/null\nStrictHostKeyChecking no",
            ".ssh/known_hosts",
            "{at} {ed25519}",
            "new",
        ),
        ("StrictHostKeyChecking accept-new", ".ssh/known_hosts", "", "new"),
        ("StrictHostKeyChecking off", ".ssh/known_hosts", "{at} {wrong_ed25519}", "changed"),
        (
            "CheckHostIP yes",
            ".ssh/known_hosts",
            "{at} {ed25519}\n127.0.0.1 {wrong_ed25519}",
            "known",
        ),
        ("HostKeyAlias Gate", ".ssh/known_hosts", "gate {ed25519}", "known"),
        ("HostKeyAlias gate", ".ssh/known_hosts", "{at} {ed25519}", "new"),
        ("HostKeyAlias [gate]:7", ".ssh/known_hosts", "[gate]:7 {ed25519}", "known"),
        ("HostKeyAlias gate", ".ssh/known_hosts", "gate {wrong_ed25519}", "changed"),
        (
            "VerifyHostKeyDNS yes\nNoHostAuthenticationForLocalhost yes",
            ".ssh/known_hosts",
            "",
            "new",
        ),
    ],
)
def test_session_and_rsync_agree_on_ssh_settings_and_refuse_unknown_keys(
    shown: Shown,
    tmp_path: Path,
    configured: Callable[[str], None],
    config: str,
    file: str,
    line: str,
    state: str,
) -> None:
    host = replace(shown.hosts["all"].host, known_hosts=None)
    (tmp_path / file.format(port=host.port)).write_bytes(lines_of(line, shown, host.port))
    configured(config.format(home=tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert (session_report(host)[0], ssh_report(rsync_s_ssh(resolve(host)), tmp_path)) == (
        state,
        state,
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["keys", "others", "krl", "other-krl", "garbage", "missing"])
def test_session_and_rsync_refuse_revoked_host_keys(
    shown: Shown, tmp_path: Path, configured: Callable[[str], None], kind: str
) -> None:
    host = shown.hosts["all"].host
    known, revoked = tmp_path / "known", tmp_path / kind
    known.write_bytes(lines_of("{at} {ed25519}", shown, host.port))
    text = {
        "keys": f"# gone\n\n{shown.keys['rsa']}\n {shown.keys['ed25519']} me\n",
        "others": f"{shown.keys['rsa']}\n",
        "garbage": "no key\n",
    }.get(kind)
    if text is not None:
        revoked.write_text(text)
    elif kind != "missing":
        key = shown.folder / ("rsa.pub" if kind == "other-krl" else "ed25519.pub")
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(revoked), str(key)], check=True)
    configured(f"  RevokedHostKeys {revoked}")
    target_host = replace(host, known_hosts=str(known))
    state = "known" if "other" in kind else "revoked"
    found, message = session_report(target_host)
    assert (found, ssh_report(rsync_s_ssh(resolve(target_host)))) == (state, state)
    assert str(revoked) in message or state == "known"
