"""Check the rules of the architecture on the source text of one file.

The rules limit imports, names, printing, sleeps and the length of files. A rule reads the syntax
tree, so it also sees imports inside functions.
"""

import ast
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = (
    ("errors", "agent", "runtime"),
    ("text", "machine"),
    ("model",),
    ("config", "tree", "planning"),
    ("transport", "store"),
    ("operations", "lab"),
    ("ui",),
    ("cli",),
    ("api",),
)
# A table in ARCHITECTURE.md divides the modules of each of these folders into groups ("rooms"), and
# orders the groups. A group may import only groups below it.
DIVIDED = ("agent", "agent/serve", "model", "operations", "planning", "transport", "ui")
_ROW = re.compile(r"^\| `([\w/]+)/` \| (`.*`) \|$", re.MULTILINE)
HEIGHT = {name: height for height, names in enumerate(FLOORS) for name in names}
# {foreign library: the only folders that may import it}
DOORS = {
    "rich": ("tfdeploy/ui/", "tfdeploy/cli/"),
    "fabric": ("tfdeploy/transport/",),
    "paramiko": ("tfdeploy/transport/",),
    "invoke": ("tfdeploy/transport/",),
    "yaml": ("tfdeploy/config/",),
    "tensorflow": ("tfdeploy/runtime/", "examples/", "tests/lab/programs/"),
    "tf_keras": ("tfdeploy/runtime/", "examples/", "tests/lab/programs/"),
    "keras": ("tfdeploy/runtime/", "examples/", "tests/lab/programs/"),
}
# Packages that the user's TensorFlow installs.
WITH_TENSORFLOW = ("tensorflow", "tf_keras", "keras", "numpy", "absl", "grpc")
STANDARD_LIBRARY_ONLY = (
    "tfdeploy/agent/",
    "tfdeploy/runtime/",
    "tfdeploy/errors.py",
    "tfdeploy/__init__.py",
)
OF_THE_RUNTIME = (
    "tfdeploy.runtime.old_names.removed_names",
    "tfdeploy.runtime.old_names.numpy_names",
    "tfdeploy.runtime.job_synonyms",
    # The planning code uses these modules, and so does the runtime inside a task.
)
SHARED = (
    "errors",
    "frames",
    "host.atomic",
    "host.file_sum",
    "host.flock",
    "host.processes",
    "wire",
    "layout",
    "shapes",
    "bitmap",
    "peer_filter",
    "limit",
    "listing",
    "pieces",
    "stamp",
    "metric_lines",
    "ownership",
    "seen",
    "metric_names",
    "metric_patterns",
    "metric_reader",
)
OF_THE_AGENT = tuple(f"tfdeploy.agent.{name}" for name in SHARED)
WITHOUT = {"planning": ("transport", "config"), "config": ("planning",), "operations": ("ui",)}
UI_SEES = ("text", "model", "errors", "ui")
BANNED_NAMES = {"utils", "helpers", "common", "core", "manager", "misc", "data", "info"}
MAY_PRINT = ("tfdeploy/ui/", "tfdeploy/cli/")
# The most modules in one folder.
MOST_MODULES = 25
# The most lines in one module.
MOST_LINES = 500
LONGEST_PAUSE_S = 0.1
NOTE = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
# Standard modules that some of the Python versions 3.8 to 3.14 do not have.
_NOT_IN_ALL = (
    "aifc annotationlib asynchat asyncore audioop binhex cgi cgitb chunk compression crypt "
    "distutils graphlib imghdr imp lib2to3 "
    "mailcap msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib tomllib uu "
    "xdrlib zoneinfo"
)
STDLIB = {name for name in sys.stdlib_module_names if not name.startswith("_")} - set(
    _NOT_IN_ALL.split()
) | {
    "__future__",
    "_thread",
}
# Top-level modules that tfdeploy's sitecustomize.py imports: the runtime of tfdeploy, and the
# sitecustomize that the host already had.
OF_THE_SITE = ("_tfdeploy_runtime", "sitecustomize")
# {private module of the standard library: the one file that may try to import it}. Each such import
# saves 2 ms of the agent's start.
PRIVATE = {
    "_blake2": "tfdeploy/agent/ownership.py",
    "_json": "tfdeploy/agent/json_text.py",
    "_signal": "tfdeploy/agent/serve/server.py",
}


# All rules are applied to one file before the next file is read. So the cache of parsed files needs
# only one entry.
@lru_cache(maxsize=1)
def tree_of(source):
    return ast.parse(source)


def imports(source, path):
    """Return (line, full dotted name) of every import in the file.

    `from a import b` counts as a.b.
    """
    package = path.removesuffix(".py").split("/")[
        : -1 if not path.endswith("__init__.py") else None
    ]
    package = [step for step in package if step != "__init__"]
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def floor_of(path):
    """Return the name of the folder or module directly in tfdeploy/ that contains the file at
    `path`, if FLOORS has this name (config, ui, errors, ...). Return None for tfdeploy/__init__.py
    and tfdeploy/__main__.py.
    """
    steps = path.split("/")
    name = steps[1].removesuffix(".py")
    return name if name in HEIGHT else None


def import_faults(source, path):
    for line, name in imports(source, path):
        fault = (
            foreign_fault(name, path) if not name.startswith("tfdeploy") else own_fault(name, path)
        )
        if fault:
            yield f"{path}:{line}: {name}: {fault}"


def foreign_fault(name, path):
    top = name.partition(".")[0]
    if top in DOORS and not path.startswith(DOORS[top]):
        return f"{top} is for {' and '.join(DOORS[top])} alone"
    own = top in WITH_TENSORFLOW and path.startswith("tfdeploy/runtime/")
    if (
        path.startswith(STANDARD_LIBRARY_ONLY)
        and not own
        and top not in STDLIB
        and top not in (*PRIVATE, *OF_THE_SITE)
    ):
        return "only the standard library here"
    return None


def own_fault(name, path):
    if not path.startswith("tfdeploy/"):
        return None
    here, steps = floor_of(path), name.split(".")
    there = steps[1] if len(steps) > 1 and steps[1] in HEIGHT else None
    if there is None or here is None or there == here:
        return None
    if here in ("agent", "runtime") and there != here:
        return f"{here} sees only itself and the standard library"
    if HEIGHT[there] >= HEIGHT[here]:
        return f"{there} is no floor below {here}"
    if there in WITHOUT.get(here, ()):
        return f"{here} must not see {there}"
    if here == "ui" and there not in UI_SEES:
        return "ui sees only text, model and errors"
    if there == "agent" and not name.startswith(OF_THE_AGENT):
        return f"of the agent only {', '.join(SHARED[:-1])} and {SHARED[-1]} are seen"
    if there == "runtime" and not (here == "planning" and name.startswith(OF_THE_RUNTIME)):
        return "the runtime runs with the user's program, nowhere else"
    return None


def private_faults(source, path):
    """Return the forbidden imports of private modules of the standard library.

    Python versions add and remove private modules. So only one file may try to import each of them,
    and it must fall back to the public module.
    """
    tree = tree_of(source)
    tried = {
        line for node in ast.walk(tree) if isinstance(node, ast.Try) for line in _lines_tried(node)
    }
    for line, name in imports(source, path):
        top = name.partition(".")[0]
        private = top in ("nt", "posix") or (top.startswith("_") and top not in STDLIB)
        if private and top not in OF_THE_SITE and (PRIVATE.get(top) != path or line not in tried):
            yield f"{path}:{line}: {top} is private to the standard library"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "__import__":
            yield f"{path}:{node.lineno}: write `import`, or importlib.import_module"


def _lines_tried(node):
    """Return the line numbers of the body of a `try` that handles ImportError.

    Return () for any other node.
    """
    if not any(
        handler.type and "ImportError" in ast.unparse(handler.type) for handler in node.handlers
    ):
        return ()
    return range(node.body[0].lineno, node.body[-1].end_lineno + 1)


def rooms_of(text):
    """Parse the rows of the table in ARCHITECTURE.md, such as "`a b` < `c`, `d` < `*`".

    A row is for one folder of tfdeploy. It orders the folder's subfolders ("rooms") and the modules
    that lie directly in the folder; `*` stands for all such modules that the row does not name.
    Return {folder: {name of the room or module: height}}. The height is the number of `<` signs
    before the name in its row.
    """
    return {folder: _heights(folder, row) for folder, row in _ROW.findall(text)}


def _heights(folder, row):
    named = set(re.findall(r"\w+", row))
    modules = {path.stem for path in (ROOT / "tfdeploy" / folder).glob("*.py")}
    others = " ".join(modules - named - {"__init__"})
    return {
        name: height
        for height, level in enumerate(row.split("<"))
        for name in re.findall(r"\w+", level.replace("*", others))
    }


def room_faults(source, path):
    """Return the imports that break a rule of ARCHITECTURE.md. The rule defines an order of the
    subfolders ("rooms") and the modules of a folder.

    A room or a module may import only rooms and modules whose height in ROOMS is smaller. Two
    modules that are in no room and have the same height may import each other.
    """
    for folder in (folder for folder in ROOMS if path.startswith(f"tfdeploy/{folder}/")):
        yield from _room_faults_in(folder, source, path)


def _room_faults_in(folder, source, path):
    rooms, above = ROOMS[folder], ["tfdeploy", *folder.split("/")]
    here = path.removesuffix(".py").split("/")[len(above)]
    if here not in rooms:
        return
    for line, name in imports(source, path):
        steps = name.split(".")
        there = steps[len(above)] if len(steps) > len(above) else here
        if steps[: len(above)] != above or there == here or there not in rooms:
            continue
        beside = not (is_room(folder, here) or is_room(folder, there))
        if rooms[there] > rooms[here] or (rooms[there] == rooms[here] and not beside):
            yield f"{path}:{line}: {name}: {there} is not below {here}"


def is_room(folder, name):
    # A folder that a checkout has left behind may still hold bytecode.
    return (ROOT / "tfdeploy" / folder / name / "__init__.py").exists()


ROOMS = rooms_of((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


def name_faults(source, path):
    for step in path.removesuffix(".py").split("/"):
        if step.lower() in BANNED_NAMES:
            yield f"{path}: {step} is a banned name"
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.ClassDef) and any(
            word.lower() in BANNED_NAMES for word in words_of(node.name)
        ):
            yield f"{path}:{node.lineno}: class {node.name} has a banned name"


def words_of(name):
    """Return the names to compare with banned names: the whole name and its last word. Because Info
    and Data are banned, HostInfo is banned too, but DataListing is allowed.
    """
    matches = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return {name.strip("_"), *matches[-1:]}


def print_faults(source, path):
    if path.startswith(MAY_PRINT):
        return
    for node in ast.walk(tree_of(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"{path}:{node.lineno}: only ui and cli print"


def sleep_faults(source, path):
    """Return the sleeps that are not part of polling.

    A test may check a condition in a loop, with short pauses between the checks. Any other sleep
    only guesses how long something takes.
    """
    tree = tree_of(source)
    looping = {
        id(node)
        for loop in ast.walk(tree)
        if isinstance(loop, (ast.While, ast.For))
        for node in ast.walk(loop)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("time.sleep", "sleep"):
            continue
        pause = node.args[0] if node.args else None
        short = not isinstance(pause, ast.Constant) or pause.value <= LONGEST_PAUSE_S
        if id(node) not in looping or not short:
            yield f"{path}:{node.lineno}: tests wait for conditions, they do not sleep"


def note_faults(source, path):
    for number, line in enumerate(source.splitlines(), 1):
        if NOTE.search(line):
            yield f"{path}:{number}: {line.strip()}"


def length_faults(source, path):
    lines = source.count("\n")
    if lines > MOST_LINES:
        yield f"{path}: {lines} lines; {MOST_LINES} is the most"


RULES = {
    "rooms": (room_faults, ("tfdeploy/",)),
    "imports": (import_faults, ("tfdeploy/", "examples/", "benchmarks/")),
    "private": (private_faults, ("tfdeploy/",)),
    "names": (name_faults, ("tfdeploy/",)),
    "print": (print_faults, ("tfdeploy/",)),
    "sleep": (sleep_faults, ("tests/",)),
    "notes": (note_faults, ("tfdeploy/", "tests/", "examples/", "benchmarks/", "scripts/")),
    "length": (length_faults, ("tfdeploy/",)),
}
# The rule about sleeps is for tests. It does not apply to these folders, because they contain
# programs that tests start.
MAY_SLEEP = ("tests/lab/programs/",)


def sources():
    """Return all Python files of the project that git tracks or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = listed.stdout.split("\0") if listed.returncode == 0 else []
    found = {path for path in paths if path} or {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("t*/**/*.py")
    }
    return sorted(path for path in found if (ROOT / path).is_file())
