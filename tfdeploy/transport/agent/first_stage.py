"""Build PROGRAM, which a host runs before it has the agent, on any Python 3.8 or newer.

PROGRAM trusts no existing folder on the host. It runs an agent that it finds there only if
ownership.py has checked that no other user can change the folder, and that the hash of the files is
the folder's name. If seen.py finds that the files are the same as at the last such check, they are
not read again. A missing or damaged agent is installed first. The received files are compared with
the same hash before they are written.
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
# Leave out the home folder, which may have a json.py.
sys.path[:] = [path for path in sys.path if path]
import fcntl
"""
# The source that installs the agent. It is compiled only on hosts without the agent.
_ARRIVAL = b"""
def unpack(joined_files, workdir, name):
    make_workdir(workdir)
    agents = os.path.join(workdir, AGENTS)
    os.makedirs(agents, 0o700, exist_ok=True)
    check_owners(workdir, AGENTS)
    for folder in abandoned_folders(agents):
        remove(folder)
    fresh = os.path.join(agents, "new-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    try:
        os.mkdir(fresh, 0o700)
        extract(fresh, joined_files)
        move_into_place(fresh, workdir, name)
    finally:
        remove(fresh)
        remove(fresh + ".old")
def remove(folder):
    if os.path.lexists(folder):
        import shutil
        shutil.rmtree(folder, True)
def abandoned_folders(agents): # of installations that were killed an hour ago or earlier
    import time
    for entry in os.scandir(agents):
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError: # another installation has ended
            continue
        if (entry.name.startswith("new-") and about.st_uid == os.getuid()
                and time.time() - about.st_mtime > 3600):
            yield entry.path
def extract(fresh, joined_files): # the format of archive.join_files
    made_folders, position = {fresh}, 0
    while position < len(joined_files):
        # A path and a length need less than 4096 bytes.
        path, size, _ = joined_files[position:position + 4096].split(b"\\0", 2)
        position += len(path) + len(size) + 2
        path = os.path.join(fresh, os.fsdecode(path))
        folder = os.path.dirname(path)
        if folder not in made_folders:
            # Otherwise Python would make __pycache__ later, perhaps with a umask that lets others
            # write to it.
            os.makedirs(os.path.join(folder, "__pycache__"), 0o700)
            made_folders.add(folder)
        # Nothing is flushed, because an agent that a power cut damages is installed again.
        with open(path, "wb") as file:
            file.write(joined_files[position:position + int(size)])
        position += int(size)
def move_into_place(fresh, workdir, name):
    folder = os.path.join(workdir, AGENTS, name)
    for again in (True, False):
        try:
            return os.rename(fresh, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
            if has_agent(workdir, name): # another host with the same workdir was first
                return
            if not again:
                raise
        try:
            # This agent is damaged. Processes that run it have loaded it.
            os.rename(folder, fresh + ".old")
        except FileNotFoundError:
            pass
"""
# The last part of PROGRAM. It reads the line `NAME HOST WORKDIR`, which follows PROGRAM on standard
# input. REST is the source for the installation and for errors. Most starts do not need REST, so it
# is compiled only on demand.
_START = b"""
def send(line):
    sys.stdout.write("\\n" + line + "\\n")
    sys.stdout.flush()
def serve(folder, workdir, host): # in this process, because starting a second interpreter is slow
    sys.path.insert(0, folder)
    from tfdeploy.agent.main import main
    sys.exit(main(["serve", "--workdir", workdir, "--host", host]))
def enlarge_input_pipe():
    # sshd buffers what the agent has not read yet, and copies the buffer whenever it grows. With a
    # pipe of 1 MiB, receiving 3 MB takes a host 23 ms less CPU time.
    try:
        fcntl.fcntl(0, 1031, 1 << 20) # F_SETPIPE_SZ
    except OSError: # the input is no pipe, or this user has too many large pipes
        pass
def start():
    os.umask(0o077)
    enlarge_input_pipe()
    name, host, workdir = os.fsdecode(sys.stdin.buffer.readline()[:-1]).split(" ", 2)
    workdir = os.path.normpath(os.path.expanduser(workdir))
    folder = os.path.join(workdir, AGENTS, name)
    try:
        if os.path.isabs(workdir) and is_agent_unchanged(workdir, name):
            send("=tfdeploy-have=")
        else:
            exec(REST, globals())
            install_if_missing(workdir, name)
        serve(folder, workdir, host)
    except OSError as error:
        exec(REST, globals())
        report_error(error, folder)
start()
"""
_INSTALL = b"""
def fail(code, what, advice=None, details={}):
    import json
    send("=tfdeploy-fail= " + json.dumps(
        {"code": code, "what": what, "advice": advice, "details": details}))
    sys.exit(1)
def report_error(error, path):
    if hasattr(error, "why"):
        exec(MENDING, globals())
        fail("foreign", *describe_problem(error.why, error.path, error.workdir, error.about))
    what = "%s: %s" % (error.filename or path, error.strerror)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        fail("workdir", what)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    disk = os.statvfs(path)
    inodes = disk.f_favail if disk.f_files else "unlimited"
    free_kib = disk.f_bavail * disk.f_frsize >> 10
    fail("disk", "%s, %d KiB and %s inodes free" % (what, free_kib, inodes))
def install_if_missing(workdir, name):
    if not os.path.isabs(workdir):
        fail("workdir", "%s: there is no home folder to put it in" % workdir)
    if has_agent(workdir, name):
        return send("=tfdeploy-have=")
    send("=tfdeploy-need=")
    exec(ARRIVAL, globals())
    import zlib
    data = sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
    try:
        joined_files = zlib.decompress(data)
    except zlib.error:
        joined_files = b""
    if blake2b(joined_files, digest_size=16).hexdigest() != name:
        fail("workdir", "the agent arrived damaged")
    unpack(joined_files, workdir, name)
"""


def _source_without_agent_imports(module: str) -> bytes:
    """Return the source of `tfdeploy.agent.MODULE` without its imports of other agent modules.

    These imports can be left out. PROGRAM already contains the modules that its code uses. The
    other modules are used only in annotations.
    """
    return _OWN_IMPORT.sub(b"", (Path(layout.__file__).parent / f"{module}.py").read_bytes())


_REST = (
    _FUTURE
    + _source_without_agent_imports("ownership")
    + _INSTALL
    + f"ARRIVAL = {_ARRIVAL!r}\nMENDING = {_source_without_agent_imports('mending')!r}\n".encode()
)
PROGRAM = (
    _FUTURE
    + _BEGIN
    + _source_without_agent_imports("seen")
    + b"REST = "
    + repr(_REST).encode()
    + b"\n"
    + _START
)
