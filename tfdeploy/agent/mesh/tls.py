"""Use mutual TLS with the certificates of one run. A peer without a certificate of its CA is
rejected."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
import time
from contextlib import contextmanager

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Iterator, Optional, Tuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Certificates


def contexts(certs: Certificates) -> Tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return (server context, client context). Raises ssl.SSLError."""
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    # names are the run's own, compared by peer_name: addresses mean nothing here
    client.check_hostname = False
    server.num_tickets = 0  # unread tickets turn a close into a reset
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certs["ca"])
        with _file(certs["cert"] + "\n" + certs["key"]) as path:
            context.load_cert_chain(path)
    return server, client


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Return a path with this content for load_cert_chain: in memory if the kernel can, else a
    temporary file of mode 0600."""
    content = text.encode("ascii")
    try:
        descriptor = os.memfd_create("certs")
    except (AttributeError, OSError):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    try:
        os.write(descriptor, content)
        yield "/proc/self/fd/%d" % descriptor
    finally:
        os.close(descriptor)


def peer_name(channel: ssl.SSLSocket) -> Optional[str]:
    """Return the host that the other side's certificate names."""
    certificate: Any = channel.getpeercert() or {}
    for names in certificate.get("subject", ()):
        for key, text in names:
            if key == "commonName":
                return str(text)
    return None


def wait_until(channel: ssl.SSLSocket, deadline: float) -> None:
    """Set the timeout of the next operation to `deadline` (monotonic seconds). Raises
    socket.timeout if it has passed."""
    left_s = deadline - time.monotonic()
    if left_s <= 0.0:
        raise socket.timeout("too slow")
    channel.settimeout(left_s)


def read_line(
    channel: ssl.SSLSocket, most_bytes: int, within_s: float, block_bytes: int = 1 << 16
) -> bytes:
    """Read one line, within `within_s` in all. Raises OSError, ValueError.

    Nothing may follow the line before it is answered, unless `block_bytes`, which are read at once,
    is 1.
    """
    patience_s, deadline = channel.gettimeout(), time.monotonic() + within_s
    text = bytearray()
    while not text.endswith(b"\n"):
        wait_until(channel, deadline)
        block = channel.recv(block_bytes)
        text += block
        if not block or len(text) > most_bytes:
            raise ValueError("not a line")
    channel.settimeout(patience_s)
    return bytes(text)
