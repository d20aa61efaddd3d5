"""Build PROGRAM, which a host runs before it has the agent, on any Python 3.8 or newer.

PROGRAM trusts no existing folder. It runs an agent only if ownership.py and the hash in the
folder's name prove that the agent is this version. A missing or damaged agent is installed first.
"""

from __future__ import annotations

import re
from pathlib import Path

from tfdeploy.agent import layout

_FUTURE = b"from __future__ import annotations\n"
_OWN_IMPORT = re.compile(
    rb"^from (?:__future__|tfdeploy\.agent\.\w+) import (?:\([^)]*\)|.*)\n", re.M
)
_BEGIN = b"""
import sys
sys.path[:] = [place for place in sys.path if place] # not the home folder: a json.py of the user's is none of ours
"""
# The host compiles this source only if it lacks the agent.
_ARRIVAL = b"""
def unpack(data, workdir, name):
    import shutil
    make_workdir(workdir)
    agents = os.path.join(workdir, AGENTS)
    os.makedirs(agents, 0o700, exist_ok=True)
    check_owners(workdir, AGENTS)
    for left in killed(agents):
        shutil.rmtree(left, True)
    fresh = os.path.join(agents, "new-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    try:
        os.mkdir(fresh, 0o700)
        fill(fresh, data)
        put(fresh, workdir, name)
    finally:
        shutil.rmtree(fresh, True)
        shutil.rmtree(fresh + ".old", True)
def killed(agents): # what arrivals left that were killed an hour ago or earlier
    import time
    for each in os.scandir(agents):
        try:
            known = each.stat(follow_symlinks=False)
        except OSError: # another arrival has ended
            continue
        if each.name.startswith("new-") and known.st_uid == os.getuid() and time.time() - known.st_mtime > 3600:
            yield each.path
def fill(fresh, data):
    import io, zipfile
    zipfile.ZipFile(io.BytesIO(data)).extractall(fresh) # not flushed: what a power cut damages is found and replaced
    for folder, inner, files in os.walk(fresh):
        if folder != fresh: # made here: a program with a loose umask would let others write to it
            os.mkdir(os.path.join(folder, "__pycache__"), 0o700)
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
# This source reads `NAME HOST WORKDIR`, the first line after the program. Most starts need no other
# source, so this one imports and compiles as little as possible.
_START = b"""
def say(line):
    sys.stdout.write("\\n" + line + "\\n")
    sys.stdout.flush()
def serve(folder, workdir, host): # in this process: a second interpreter would cost as much as all the rest
    sys.path.insert(0, folder)
    from tfdeploy.agent.main import main
    sys.exit(main(["serve", "--workdir", workdir, "--host", host]))
def start():
    os.umask(0o077)
    name, host, workdir = os.fsdecode(sys.stdin.buffer.readline()[:-1]).split(" ", 2)
    workdir = os.path.normpath(os.path.expanduser(workdir))
    folder = os.path.join(workdir, AGENTS, name)
    try:
        if os.path.isabs(workdir) and is_agent_unchanged(workdir, name):
            say("=tfdeploy-have=")
        else:
            exec(REST, globals())
            look(folder, workdir, name)
        serve(folder, workdir, host)
    except OSError as error:
        exec(REST, globals())
        tell(error, folder)
start()
"""
_LOOK = b"""
def fail(code, what, advice=None, details={}):
    import json
    say("=tfdeploy-fail= " + json.dumps({"code": code, "what": what, "advice": advice, "details": details}))
    sys.exit(1)
def tell(error, path):
    if hasattr(error, "why"):
        exec(MENDING, globals())
        fail("foreign", *describe_problem(error.why, error.path, error.workdir, error.about))
    what = "%s: %s" % (error.filename or path, error.strerror)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        fail("workdir", what)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    fail("disk", "%s, %d KiB free" % (what, os.statvfs(path).f_bavail * os.statvfs(path).f_frsize >> 10))
def look(folder, workdir, name): # comes back where the agent is there, whole
    if not os.path.isabs(workdir):
        fail("workdir", "%s: there is no home folder to put it in" % workdir)
    if has_agent(workdir, name):
        return say("=tfdeploy-have=")
    say("=tfdeploy-need=")
    exec(ARRIVAL, globals())
    import hashlib
    digest, size = sys.stdin.buffer.readline().decode().split()
    data = sys.stdin.buffer.read(int(size))
    if hashlib.sha256(data).hexdigest() == digest:
        unpack(data, workdir, name)
    if not has_agent(workdir, name):
        fail("workdir", "the agent did not arrive whole")
"""


def _text(module: str) -> bytes:
    """Return the source of `tfdeploy.agent.MODULE` without its imports of other agent modules.

    PROGRAM contains those modules already, or only annotations need them.
    """
    return _OWN_IMPORT.sub(b"", (Path(layout.__file__).parent / f"{module}.py").read_bytes())


_REST = (
    _FUTURE
    + _text("ownership")
    + _LOOK
    + f"ARRIVAL = {_ARRIVAL!r}\nMENDING = {_text('mending')!r}\n".encode()
)
PROGRAM = _FUTURE + _BEGIN + _text("seen") + b"REST = " + repr(_REST).encode() + b"\n" + _START
