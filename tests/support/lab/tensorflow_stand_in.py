"""Stand in for the module `tensorflow` on hosts without TensorFlow. The server of this module only
listens.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

__version__ = "2.0.0"


class _Server:
    def __init__(
        self,
        cluster: dict[str, list[str]],
        *,
        job_name: str,
        task_index: int,
        config: dict[str, Any],
    ) -> None:
        self._socket = socket.socket()
        if os.environ.get("TF_GRPC_REUSE_PORT"):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("", int(cluster[job_name][task_index].rsplit(":", 1)[1])))
        self._socket.listen(16)

    def join(self) -> None:
        while True:
            signal.pause()


class compat:
    class v1:
        ConfigProto = dict

        class train:
            ClusterSpec = dict
            Server = _Server
