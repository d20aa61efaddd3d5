"""Build the arguments of an OpenSSH command that connects to a target.

The arguments contain `-F none`, because the target already has the values of the user's
configuration. The only files that this module reads are the known_hosts files, because they
determine the order of the host key algorithms. No value of a target can begin with `-`.
"""

from __future__ import annotations

import shlex

from tfdeploy.transport.quoting import command_line
from tfdeploy.transport.ssh.host_keys import accepted_keys
from tfdeploy.transport.ssh.target import Target

_ALWAYS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "CheckHostIP=no",  # needed for OpenSSH before 8.5, whose default is yes
    "UpdateHostKeys=no",
    "PreferredAuthentications=publickey",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Compression=no",
    "IgnoreUnknown=WarnWeakCrypto",  # because OpenSSH before 10.1 lacks WarnWeakCrypto
    # With `WarnWeakCrypto=yes`, ssh would print three lines about the key exchange before the cause
    # of an error.
    "WarnWeakCrypto=no",
    # mlkem768x25519 stays the only post-quantum key exchange, as in paramiko. A handshake with
    # sntrup761 takes six times as much CPU time.
    "KexAlgorithms=-sntrup761*",
    "Ciphers=^aes128-gcm@openssh.com",
)


def ssh_argv(target: Target, *, forwarding: bool = False) -> tuple[str, ...]:
    """Return all arguments before the host's name. `forwarding`: True if the caller adds -W."""
    settings = [
        f"HostName={_escape_percent(target.hostname)}",
        *(setting for setting in _ALWAYS if not (forwarding and setting.startswith("ClearAll"))),
        f"IdentitiesOnly={'yes' if target.identities_only else 'no'}",
        *(f"IdentityFile={_quoted_path(path)}" for path in target.identity_files or ("none",)),
        *(f"CertificateFile={_quoted_path(path)}" for path in target.certificates),
        f"IdentityAgent={_quoted_path(target.agent) if target.agent else 'none'}",
        "UserKnownHostsFile=" + _quoted_paths(target.user_known_hosts),
        "GlobalKnownHostsFile=" + _quoted_paths(target.global_known_hosts),
        "HostKeyAlgorithms=" + ",".join(accepted_keys.algorithms(target)),
    ]
    if target.revoked_keys is not None:
        settings.append(f"RevokedHostKeys={_quoted_path(target.revoked_keys)}")
    if target.host_key_alias:
        settings.append(f"HostKeyAlias={target.host_key_alias}")
    if target.jump is not None:
        settings.append(
            "ProxyCommand="
            + _escape_percent(
                shlex.join(
                    (*ssh_argv(target.jump, forwarding=True), "-W", target.shown_address, "jump")
                )
            )
        )
    elif target.proxy_command is not None:
        settings.append("ProxyCommand=" + _escape_percent(target.proxy_command))
    argv = ["ssh", "-F", "none", "-T", "-p", str(target.port), "-l", target.user]
    for setting in settings:
        argv += ["-o", setting]
    return tuple(argv)


def shell_argv(target: Target, argv: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
    """Return the whole ssh command of `tfdeploy ssh`.

    `argv`: the command to run on the host, or () for a login shell. `terminal`: True to allocate a
    terminal on the host.
    """
    ssh_command = (
        tuple("-t" if word == "-T" else word for word in ssh_argv(target))
        if terminal
        else ssh_argv(target)
    )
    return (
        *ssh_command,
        "--",
        target.name or target.hostname,
        *((command_line(argv),) if argv else ()),
    )


def quote_for_rsync(command: tuple[str, ...]) -> str:
    """Return the words as one string, quoted for rsync's option `-e`.

    rsync knows quotes but no backslashes, so a quote inside quotes is doubled.
    """
    return " ".join("'" + argument.replace("'", "''") + "'" for argument in command)


def _escape_percent(text: str) -> str:
    """Double each `%`, because `%` begins a token in the values of ssh's settings."""
    return text.replace("%", "%%")


def _quoted_path(path: str) -> str:
    """Quote a path, so that it can be the value of one of ssh's settings."""
    escaped = _escape_percent(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(sign in path for sign in " \t\"'\\#") else escaped


def _quoted_paths(paths: tuple[str, ...]) -> str:
    # /dev/null is used because older releases of ssh read `none` as the name of a file.
    return " ".join(_quoted_path(path) for path in paths) or "/dev/null"
