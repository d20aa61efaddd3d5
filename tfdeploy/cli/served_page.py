"""Serve a page on loopback, under a secret random path.

A page that is older than MAX_AGE_S is made again at the next request. Pages of other sites cannot
read the served page, because they do not know its path, and because requests with another host name
are refused.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tfdeploy.errors import TfdeployError

MAX_AGE_S = 5.0
PATH_BYTES = 16  # random bytes in the path
REQUEST_TIMEOUT_S = 10.0  # a connection that is silent for this long is closed
# Connections that may be open at the same time. Their number is limited, because each needs a
# thread, and any user of this machine can open connections.
MAX_CONNECTIONS = 128


class ServedPage(ThreadingHTTPServer):
    """An HTTP server of one page.

    `make_page`: returns the page's HTML; it may raise TfdeployError. The constructor raises OSError
    if the port is in use.
    """

    def __init__(self, make_page: Callable[[], str], port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.path = f"/{secrets.token_hex(PATH_BYTES)}/"
        self._make_page, self._made_at, self._page = make_page, 0.0, b""
        self._lock = threading.Lock()
        self._connection_slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.path}"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return True as soon as fewer than MAX_CONNECTIONS connections are open.

        Connections that send nothing are closed after REQUEST_TIMEOUT_S seconds, so the wait ends.
        """
        return self._connection_slots.acquire()

    def shutdown_request(self, request: Any) -> None:
        """Close the connection. Another connection may then open in place of it."""
        super().shutdown_request(request)
        self._connection_slots.release()

    def cached_or_new_html(self) -> bytes:
        """Return the page in UTF-8, made at most MAX_AGE_S seconds ago. Raises TfdeployError."""
        with self._lock:
            if not self._page or time.monotonic() - self._made_at > MAX_AGE_S:
                self._page = self._make_page().encode("utf-8", "replace")
                self._made_at = time.monotonic()
            return self._page


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server: ServedPage

    def do_GET(self) -> None:
        own_host = f"127.0.0.1:{self.server.server_port}"
        known_path = secrets.compare_digest(self.path.encode(), self.server.path.encode())
        if self.headers.get("Host") != own_host or not known_path:
            self.send_error(404)
            return
        try:
            text = self.server.cached_or_new_html()
        except TfdeployError as error:
            self.send_error(503, explain=f"the hosts do not answer: {error.what}"[:500])
            return
        self.send_response(200)
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(text)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing, instead of a line for each request."""

    def version_string(self) -> str:
        return "tfdeploy"
