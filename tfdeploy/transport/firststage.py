"""The program that a host runs before it has our agent, on any Python 3.8 or newer.

It believes no folder that it finds: the agent is run where ownership.py and the hash in its name say that it is ours, and
is put there where it is missing or damaged.
"""

from __future__ import annotations

from pathlib import Path

from tfdeploy.agent import layout

_FUTURE = b"from __future__ import annotations\n"
_BEGIN = b"""
import sys
sys.path[:] = [place for place in sys.path if place] # not the home folder: a json.py of the user's is none of ours
"""
# compiled only where the agent is missing
_ARRIVAL = b"""
def unpack(data, workdir, name):
    import shutil
    make_workdir(workdir)
    agents = os.path.join(workdir, AGENTS)
    os.makedirs(agents, 0o700, exist_ok=True)
    check(workdir, AGENTS)
    fresh = os.path.join(agents, "new-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    try:
        os.mkdir(fresh, 0o700)
        fill(fresh, data)
        put(fresh, workdir, name)
    finally:
        shutil.rmtree(fresh, True)
        shutil.rmtree(fresh + ".old", True)
def fill(fresh, data):
    import io, zipfile
    zipfile.ZipFile(io.BytesIO(data)).extractall(fresh)
    for folder, inner, files in os.walk(fresh):
        if folder != fresh: # made here: a program with a loose umask would let others write to it
            os.mkdir(os.path.join(folder, "__pycache__"), 0o700)
        for each in files + ["."]:
            file = os.open(os.path.join(folder, each), os.O_RDONLY)
            os.fsync(file)
            os.close(file)
def put(fresh, workdir, name):
    folder = os.path.join(workdir, AGENTS, name)
    for again in (True, False):
        try:
            return os.rename(fresh, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
            if has_agent(workdir, name) or not again: # another host of a shared workdir was first, and runs it
                return
        try:
            os.rename(folder, fresh + ".old") # a damaged one, which those who run it have loaded
        except FileNotFoundError:
            pass
"""
# standard input stands at `NAME HOST WORKDIR`; it imports as little as it can
_START = b"""
def say(line):
    sys.stdout.write("\\n" + line + "\\n")
    sys.stdout.flush()
def fail(code, what, next=None):
    import json
    say("=tfdeploy-fail= " + json.dumps({"code": code, "what": what, "next": next}))
    sys.exit(1)
def disk(error, path):
    import errno
    code = "disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "workdir"
    fail(code, "%s: %s" % (error.filename or path, error.strerror))
def explain(error):
    exec(MENDING, globals())
    return words(error.why, error.path, error.workdir, error.about)
def serve(folder, workdir, host): # in this process: a second interpreter would cost as much as all the rest
    sys.path.insert(0, folder)
    from tfdeploy.agent.main import main
    sys.exit(main(["serve", "--workdir", workdir, "--host", host]))
def start():
    os.umask(0o077)
    name, host, workdir = os.fsdecode(sys.stdin.buffer.readline()[:-1]).split(" ", 2)
    workdir = os.path.normpath(os.path.expanduser(workdir))
    if not os.path.isabs(workdir):
        fail("workdir", "%s: there is no home folder to put it in" % workdir)
    folder = os.path.join(workdir, AGENTS, name)
    try:
        if has_agent(workdir, name):
            say("=tfdeploy-have=")
            serve(folder, workdir, host)
        say("=tfdeploy-need=")
        exec(ARRIVAL, globals())
        import hashlib
        digest, size = sys.stdin.buffer.readline().decode().split()
        data = sys.stdin.buffer.read(int(size))
        if hashlib.sha256(data).hexdigest() == digest:
            unpack(data, workdir, name)
        if not has_agent(workdir, name):
            fail("workdir", "the agent did not arrive whole")
        os.execv(sys.executable, [sys.executable, "-S", "-E", folder, "serve", "--workdir", workdir, "--host", host])
    except NotOurs as error:
        fail("foreign", error.what, error.next)
    except OSError as error:
        disk(error, folder)
start()
"""


def _text(module: str) -> bytes:
    return (Path(layout.__file__).parent / f"{module}.py").read_bytes().replace(_FUTURE, b"")


_LATER = f"ARRIVAL = {_ARRIVAL!r}\nMENDING = {_text('mending')!r}\n".encode()
PROGRAM = _FUTURE + _BEGIN + _text("ownership") + _LATER + _START
