"""Create TLS contexts from the certificates of one run, and read from TLS connections with a
deadline. Both sides of a connection need a certificate of the run's CA."""

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


class WrongHostAnswered(ValueError):
    """A host was reached that is not the expected one. The text of the error names the host that
    was reached."""


def make_contexts(certs: Certificates) -> Tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return (TLS context of a server, TLS context of a client). Raises ssl.SSLError."""
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    # The name in a certificate is that of a host of the run, not a network address, so Python
    # cannot check it. Callers check it with `peer_name`.
    client.check_hostname = False
    # No session tickets are sent. If a client closed a connection without reading them, the server
    # would get a reset instead of the end of the stream.
    server.num_tickets = 0
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certs["ca"])
        with _certificate_file(certs["cert"] + "\n" + certs["key"]) as path:
            context.load_cert_chain(path)
    return server, client


@contextmanager
def _certificate_file(text: str) -> Iterator[str]:
    """Yield the path of a file that contains `text`, because load_cert_chain reads only files. The
    file is in memory if the kernel supports that, otherwise it is a temporary file with mode 0600.
    """
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
    """Return the host name in the certificate of the other side. Return None if the certificate
    contains no name."""
    certificate: Any = channel.getpeercert() or {}
    for names in certificate.get("subject", ()):
        for key, text in names:
            if key == "commonName":
                return str(text)
    return None


def connect(
    context: ssl.SSLContext, address: str, port: int, token: str, host: str, timeout_s: float
) -> ssl.SSLSocket:
    """Open a connection to the member `host` of the run. `token`: the server name that
    handshake_gate.server_name_token returns for this host. Raises OSError, and WrongHostAnswered if
    a different host answers."""
    plain = socket.create_connection((address, port), timeout=timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = context.wrap_socket(plain, server_hostname=token)
    except BaseException:
        plain.close()
        raise
    name = peer_name(channel)
    if name != host:
        channel.close()
        raise WrongHostAnswered("%s answers" % name)
    return channel


def read_line(
    channel: ssl.SSLSocket, most_bytes: int, within_s: float, block_bytes: int = 1 << 16
) -> bytes:
    """Read one line within `within_s` seconds. Raises OSError. Raises ValueError if the line is
    longer than `most_bytes`, or if the stream ends within the line.

    One call of recv reads up to `block_bytes` bytes. If `block_bytes` is more than 1, the call may
    also read bytes after the line. So the other side must send nothing after the line until it has
    received an answer.
    """
    patience_s, deadline = channel.gettimeout(), time.monotonic() + within_s
    text = bytearray()
    while not text.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0.0:
            raise socket.timeout("too slow")
        channel.settimeout(left_s)
        block = channel.recv(block_bytes)
        text += block
        if not block or len(text) > most_bytes:
            raise ValueError("not a line")
    channel.settimeout(patience_s)
    return bytes(text)
