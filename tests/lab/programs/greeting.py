"""A task without TensorFlow that sends a greeting over each connection that reaches it.

    python greeting.py                 listens on all interfaces, as a TensorFlow server does
    python greeting.py --only_ipv4     listens on 0.0.0.0 alone, where tfdeploy cannot filter
    python greeting.py --in_a_child    listens in a child process, which survives its parent

The program sets SO_REUSEPORT, because the agent holds the same port.
"""
import json
import os
import socket
import sys

from socketserver import ThreadingTCPServer, BaseRequestHandler


class Greeter(BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"let in\n")


class Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 512

    def server_bind(self):
        self.socket.close()
        family = socket.AF_INET if "--only_ipv4" in sys.argv else socket.AF_INET6
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        self.socket.bind(("", self.server_address[1]))


if "--in_a_child" in sys.argv and os.fork():
    sys.exit(os.wait()[1] >> 8)
said = json.loads(os.environ["TF_CONFIG"])
address = said["cluster"][said["task"]["type"]][said["task"]["index"]]
with Server(("", int(address.rpartition(":")[2])), Greeter) as server:
    print("listens at", address, flush=True)
    server.serve_forever()
