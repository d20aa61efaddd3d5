"""Check the texts of the inventory, of the job file and of hosts against allow-lists.

Each text is checked before it becomes part of a command of ssh or rsync, is sent to a host, or is
used as a path on this machine. No check allows a leading `-`. A text that is only shown needs no
check: `to_printable_line` makes it harmless. All functions are pure.
"""

from __future__ import annotations

import ipaddress
import re

from tfdeploy.agent.errors import is_safe_name

# Matches the name of a host, job, role, data set or release.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}\Z", re.ASCII)
PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254}\Z", re.ASCII)
HOSTNAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\.?\Z", re.ASCII)
_HOST_PATH = re.compile(r"(~/|/)[\w.+@,=: /-]{0,1023}\Z")
_SHOWN_CHARS = 2000  # the most characters of a text that is only shown; the rest is cut off


def is_name(text: str) -> bool:
    """True if the text can name a host, job, role, data set or release."""
    return bool(NAME.match(text))


def is_run_id(text: str) -> bool:
    """True if the text can be a run's id: a job's name, a time and four letters. An id may be
    longer than other names."""
    return is_safe_name(text)


def is_ip(text: str) -> bool:
    bare, percent, zone = text.partition("%")
    if percent and not re.match(r"[A-Za-z0-9_.-]{1,15}\Z", zone, re.ASCII):
        return False
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def is_hostname(text: str) -> bool:
    """True for a host name or an IPv4 address."""
    return bool(HOSTNAME.match(text)) and (not re.match(r"[\d.]+\Z", text) or is_ip(text))


def is_address(text: str) -> bool:
    """True for a host name, or an IP address without brackets."""
    return is_ip(text) if ":" in text else is_hostname(text)


def is_endpoint(text: str) -> bool:
    """True for `address:port`, with an IPv6 address in brackets."""
    address, colon, port = text.rpartition(":")
    if address.startswith("[") and address.endswith("]"):
        return bool(colon) and ":" in address and is_ip(address[1:-1]) and is_port(port)
    return bool(colon) and is_hostname(address) and is_port(port)


def is_port(text: str) -> bool:
    return bool(re.match(r"[1-9]\d{0,4}\Z", text, re.ASCII)) and int(text) < 1 << 16


def is_host_path(text: str) -> bool:
    """True for a folder or file on a host: absolute or below ~, without `..`, and not the root
    itself."""
    inside = [step for step in text.split("/")[1:] if step not in ("", ".")]
    return bool(_HOST_PATH.match(text)) and ".." not in inside and bool(inside)


def is_printable_text(text: str) -> bool:
    """True for a printable text that is not empty, not too long and does not begin with `-`."""
    return bool(text) and not text.startswith("-") and len(text) <= 4096 and text.isprintable()


def to_printable_line(text: str) -> str:
    """Return the text as one printable line of bounded length. Use it for text that is only
    shown."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN_CHARS])
