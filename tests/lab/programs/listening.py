"""Each task listens on its port, as TensorFlow's servers do, and greets whoever comes.

It never ends by itself.
"""
import argparse
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
args = parser.parse_args()

own = getattr(args, args.job_name + "_hosts").split(",")[args.task_index]
server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("::", int(own.rpartition(":")[2])))
server.listen(64)
while True:
    one = server.accept()[0]
    try:
        one.sendall(b"x")
    except OSError:
        pass
    one.close()
