"""Determine address, user, keys and jump hosts of one host, for SSH sessions and for rsync's ssh.

The inventory has precedence over OpenSSH's configuration, which has precedence over OpenSSH's
defaults. Every value is checked against a pattern of allowed characters, because some values become
arguments of commands.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
from dataclasses import dataclass, field, replace

from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import ssh_config

ALIAS = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]{0,254}\Z")
ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}\Z")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?\Z")
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


@dataclass(frozen=True)
class Target:
    """The settings that are needed to connect to one host. All paths are absolute.

    `identities_only`: True to offer only keys of `identity_files`, which may be in an ssh-agent.
    `agent`: the socket of the ssh-agent, or "" if no agent is used.
    `unused`: settings in ssh's configuration that have no effect in tfdeploy.
    """

    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    user_known_hosts: tuple[str, ...] = ()  # new keys are recorded in the first of these files
    global_known_hosts: tuple[str, ...] = ()
    revoked_keys: str | None = None  # the file that RevokedHostKeys names
    jump: Target | None = None  # jump host directly before this host
    proxy_command: str | None = None  # the ProxyCommand, which /bin/sh runs
    host_key_alias: str | None = None
    agent: str = ""
    certificates: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    # True if ssh's HashKnownHosts is yes, False if it is no, None if `ssh -G` did not run.
    hash_names: bool | None = field(default=None, compare=False)
    name: str = field(default="", compare=False)  # name in the inventory, for messages
    # How messages name the setting of the user, and the setting of the key file. If file and line
    # of the setting are known, the text includes them.
    user_setting: str = field(default="`user:`", compare=False)
    key_setting: str = field(default="`identity_file:`", compare=False)
    # How messages name the setting of the address. For a jump host, this setting is `jump:`.
    address_setting: str = field(default="`address:`", compare=False)
    bwlimit: int | None = field(default=None, compare=False)  # bytes per second, for rsync

    @property
    def known_hosts_name(self) -> str:
        """Return the host's name in known_hosts: the alias, or `host`, or `[host]:port`."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        name = self.hostname.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"

    @property
    def fallback_known_name(self) -> str | None:
        """Return the name that OpenSSH looks up in known_hosts if `[host]:port` has no key.

        Return None if OpenSSH looks up no second name.
        """
        return None if self.host_key_alias or self.port == 22 else self.hostname.lower()

    @property
    def known_hosts(self) -> tuple[str, ...]:
        return self.user_known_hosts + self.global_known_hosts

    @property
    def shown_address(self) -> str:
        """Return `host:port`, with an IPv6 address in brackets."""
        name = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{name}:{self.port}"

    @property
    def where(self) -> str:
        """Return `user@host:port`, for messages."""
        return f"{self.user}@{self.shown_address}"


def resolve(host: Host) -> Target:
    """Return the settings for the connection to one host of the inventory.

    Raises ConfigError if an address, user or alias has characters that are not allowed.
    """
    address = _refuse_unmatched(
        ADDRESS, host.address.strip("[]"), "address", host.source or host.name
    )
    answers = ssh_config.read_settings(address, host.port, host.user)
    configured = _refuse_unmatched(
        ADDRESS,
        _last_value(answers, "hostname", address).strip("[]"),
        "address",
        ssh_config.user_config(),
    )
    hostname = _canonical_address(configured)
    port = host.port or int(_last_value(answers, "port", "22"))
    user = _refuse_unmatched(
        USER,
        host.user or _last_value(answers, "user", "") or _login_name(),
        "user",
        host.source or host.name,
    )
    tokens = {
        "h": hostname,
        "n": address,
        "k": _last_value(answers, "hostkeyalias", address),
        "p": str(port),
        "r": user,
    }
    files = (
        (_absolute_path(host.identity_file),)
        if host.identity_file
        else _identities(answers, tokens)
    )
    own_known_hosts = (_absolute_path(host.known_hosts),) if host.known_hosts else ()
    jump, command = _resolve_route(host, answers, tokens)
    return Target(
        hostname=hostname,
        port=port,
        user=user,
        identity_files=files,
        identities_only=bool(host.identity_file)
        or _last_value(answers, "identitiesonly", "no") == "yes",
        user_known_hosts=own_known_hosts or _paths(answers, "userknownhostsfile", USER_KNOWN_HOSTS),
        global_known_hosts=_paths(answers, "globalknownhostsfile", GLOBAL_KNOWN_HOSTS),
        revoked_keys=next(iter(_paths(answers, "revokedhostkeys", ())), None),
        jump=jump,
        proxy_command=command,
        host_key_alias=_host_key_alias(answers),
        agent=_agent_socket(_last_value(answers, "identityagent", "SSH_AUTH_SOCK")),
        certificates=_key_files(answers, "certificatefile", tokens),
        unused=tuple(
            f"PKCS11Provider {name}" for name in _configured_values(answers, "pkcs11provider")
        ),
        hash_names=answers["hashknownhosts"] == ("yes",) if "hashknownhosts" in answers else None,
        name=host.name,
        user_setting=host.setting_with_place("user"),
        key_setting=host.setting_with_place("identity_file"),
        address_setting=host.setting_with_place("address"),
        bwlimit=host.bwlimit,
    )


def parse_jump(text: str) -> tuple[tuple[str | None, str, int | None], ...]:
    """Parse a list of jump hosts. Return (user, host, port) of each one, the first hop first.

    `text`: one or more `[user@]host[:port]`, separated by commas. Raises ConfigError.
    """
    hops: list[tuple[str | None, str, int | None]] = []
    for hop in text.split(","):
        user, has_user, host_and_port = hop.strip().removeprefix("ssh://").rpartition("@")
        match = re.fullmatch(
            r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|((?:[0-9A-Fa-f.]*:){2,}[0-9A-Fa-f.]*)",
            host_and_port,
        )
        if not match or (has_user and not user):
            raise ConfigError(f"jump {hop.strip()!r} is not [user@]host[:port]")
        name = match[1] or match[3] or match[5]
        port = match[2] or match[4]
        hops.append((user or None, name, int(port) if port else None))
    return tuple(hops)


def _resolve_route(
    host: Host, answers: ssh_config.SshSettings, value_by_token: dict[str, str]
) -> tuple[Target | None, str | None]:
    """Return (jump host, proxy command) of the host. At least one of them is None."""
    if host.jump is not None:
        return (
            (None, None) if host.jump.lower() == "none" else (_resolve_jumps(host.jump, host), None)
        )
    through = _last_value(answers, "proxyjump", "none")
    if through != "none":
        return _resolve_jumps(through, host), None
    command = _last_value(answers, "proxycommand", "none")
    if command == "none":
        return None, None
    quoted_tokens = {token: shlex.quote(text) for token, text in value_by_token.items()}
    return None, _expand_tokens(command, quoted_tokens)


def _resolve_jumps(text: str, host: Host) -> Target:
    """Return the last jump host in `text`. Its `jump` is the jump host before it, and so on."""
    previous: Target | None = None
    for user, name, port in parse_jump(text):
        # A jump host is offered the identity file of `host` first, and then the keys that ssh would
        # offer.
        hop = resolve(
            Host(
                name=name,
                address=name,
                port=port,
                user=user,
                jump="none",
                known_hosts=host.known_hosts,
            )
        )
        files = (
            (_absolute_path(host.identity_file),) if host.identity_file else ()
        ) + hop.identity_files
        command = None if previous else hop.proxy_command
        previous = replace(
            hop,
            identity_files=tuple(dict.fromkeys(files)),
            jump=previous,
            proxy_command=command,
            address_setting=f"`ProxyJump` ({ssh_config.config_file_with('proxyjump')})"
            if host.jump is None
            else host.setting_with_place("jump"),
        )
    assert previous is not None
    return previous


def _agent_socket(setting: str) -> str:
    """Return the path of the ssh-agent's socket for a value of IdentityAgent, or "" for no agent.

    As in ssh_config(5), the value is a path, `none`, SSH_AUTH_SOCK or `$NAME`.
    """
    if setting.lower() == "none":
        return ""
    if setting == "SSH_AUTH_SOCK":
        setting = "$SSH_AUTH_SOCK"
    return (
        os.environ.get(setting[1:].strip("{}"), "")
        if setting.startswith("$")
        else _absolute_path(setting)
    )


def _expand_tokens(text: str, value_by_token: dict[str, str]) -> str:
    """Replace those %-tokens of ssh_config(5) that `ssh -G` leaves in its output.

    Raises ConfigError for an unknown token.
    """

    def expand_token(match: re.Match[str]) -> str:
        if match[1] in value_by_token:
            return value_by_token[match[1]]
        functions = {
            "%": lambda: "%",
            "d": lambda: os.path.expanduser("~"),
            "i": lambda: str(os.getuid()),
            "u": _login_name,
        }
        functions |= {"l": socket.getfqdn, "L": lambda: socket.gethostname().partition(".")[0]}
        if match[1] not in functions:
            raise ConfigError(
                f"{text}: tfdeploy does not know %{match[1]}", where=ssh_config.user_config()
            )
        return functions[match[1]]()

    return re.sub("%(.?)", expand_token, text)


def _identities(answers: ssh_config.SshSettings, value_by_token: dict[str, str]) -> tuple[str, ...]:
    """Return the existing identity files that ssh's configuration names.

    If the configuration names no existing file, return the existing default files.
    """
    named = _key_files(answers, "identityfile", value_by_token)
    defaults = map(_absolute_path, DEFAULT_IDENTITIES)
    return tuple(filter(os.path.exists, named)) or tuple(filter(os.path.exists, defaults))


def _key_files(
    answers: ssh_config.SshSettings, key: str, value_by_token: dict[str, str]
) -> tuple[str, ...]:
    """Return the paths that ssh's configuration gives for `key`, with %-tokens replaced."""
    return tuple(
        _absolute_path(_expand_tokens(name, value_by_token))
        for name in _configured_values(answers, key)
    )


def _configured_values(answers: ssh_config.SshSettings, key: str) -> list[str]:
    """Return the values that ssh's configuration gives for `key`. The word `none` is no value."""
    return [name for name in answers.get(key, ()) if name.lower() != "none"]


def _paths(answers: ssh_config.SshSettings, key: str, defaults: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that ssh's configuration gives for `key`, or `defaults`.

    `ssh -G` replaces tokens but does not quote blanks. A blank before `/` or `~` therefore counts
    as the end of a path.
    """
    configured = _last_value(answers, key, "")
    paths = (
        re.split(r" (?=[/~])", configured)
        if configured and configured != ssh_config.expand_home_like_ssh(defaults)
        else defaults
    )
    return tuple(
        _absolute_path(path) for path in paths if path.lower() not in ("none", "/dev/null")
    )


def _canonical_address(hostname: str) -> str:
    """Return an IP address in the form in which ssh looks it up in known_hosts.

    A host name is returned unchanged.
    """
    try:
        resolved = socket.getaddrinfo(hostname, None, flags=socket.AI_NUMERICHOST)
        return socket.getnameinfo(resolved[0][4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    except (OSError, UnicodeError):
        return hostname


def _host_key_alias(answers: ssh_config.SshSettings) -> str | None:
    alias = _last_value(answers, "hostkeyalias", "")
    return (
        _refuse_unmatched(ALIAS, alias, "HostKeyAlias", ssh_config.user_config()) if alias else None
    )


def _absolute_path(text: str) -> str:
    return os.path.abspath(os.path.expanduser(text))


def _last_value(answers: ssh_config.SshSettings, key: str, default: str) -> str:
    return answers.get(key, (default,))[-1]


def _refuse_unmatched(pattern: re.Pattern[str], text: str, kind: str, source: str) -> str:
    """Return the text if it matches the pattern. Otherwise raise ConfigError."""
    if not pattern.match(text):
        raise ConfigError(
            f"{kind} {text[:80]!r} has characters that no {kind} may have", where=source
        )
    return text


def _login_name() -> str:
    """Return the login name of the local user. Raises ConfigError if there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise ConfigError(
            "the local user has no login name", next="add `user:` to the inventory's defaults"
        ) from error
