"""Make a host run modified code in place of tfdeploy's agent, as the owner of the host could.

The agent's files stay unchanged, because tfdeploy verifies their checksums. Instead, the host's
Python interpreter appends code to the agent's modules when it loads them.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

from support.lab.hosts import on_host
from tfdeploy.lab import Lab

LOADER = """
import json, runpy, sys
from importlib.machinery import PathFinder
sys.executable = "%(folder)s/python"
sys.path[0:1] = []
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        try:
            text = json.load(open("%(folder)s/added.json")).get(name)
        except FileNotFoundError:
            return None
        spec = PathFinder.find_spec(name, path) if text else None
        if spec is not None:
            real = spec.loader.exec_module
            def exec_module(module):
                real(module)
                exec(text, vars(module))
            spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder)
sys.argv.pop(0)
if sys.argv[0] == "-c":
    code = sys.argv.pop(1)
    exec(code, {"__name__": "__main__"})
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
# When sshd starts bash for a single command, bash reads .bashrc too.
BASHRC = """
case "$BASH_EXECUTION_STRING" in *stdin.buffer.read*)
    tampered='%(folder)s/python "$p" -S -E -c'
    original='"$p" -S -E -c'
    exec /bin/bash --norc -c "${BASH_EXECUTION_STRING//"$original"/$tampered}";;
esac
"""
PYTHON = """#!/bin/sh
case "$1" in -*) ;; *) TAMPERED_REAL=$1; export TAMPERED_REAL; shift;; esac
case "$1 $2" in "-S -E") shift 2; exec "$TAMPERED_REAL" -S -E %(folder)s/loader.py "$@";; esac
exec "$TAMPERED_REAL" "$@"
"""


def replaces_something(module: ModuleType, text: str) -> bool:
    """Return True if the code `text` assigns to a name that the module already has, or to an
    attribute of some object.
    """
    body = ast.parse(text).body
    targets = [target for each in body if isinstance(each, ast.Assign) for target in each.targets]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    names |= {each.name for each in body if isinstance(each, ast.FunctionDef)}
    return any(hasattr(module, name) for name in names) or any(
        isinstance(target, ast.Attribute) for target in targets
    )


@contextmanager
def tampered_agent(lab: Lab, host: str, added: Mapping[ModuleType, str]) -> Iterator[None]:
    """Make the host's agent run additional code, in its sessions and in the processes that they
    start.

    `added` is {module of the agent: Python code that runs after the module}. Code that replaces no
    name of the module would have no effect, so it is refused.
    """
    for module, text in added.items():
        assert replaces_something(module, text), f"{module.__name__} has no such name: {text}"
    home = on_host(lab, host, 'printf %s "$HOME"')
    assert home == "/home/lab" or home.startswith(str(lab.root)), "not a home of this machine"
    folder = f"{home}/tampered"
    code = {module.__name__: text for module, text in added.items()}
    texts = {
        name: text % {"folder": folder}
        for name, text in {"loader.py": LOADER, "python": PYTHON, "bashrc": BASHRC}.items()
    }
    write = "\n".join(
        f"printf %s {shlex.quote(text)} > {folder}/{name}"
        for name, text in {**texts, "added.json": json.dumps(code)}.items()
    )
    on_host(
        lab,
        host,
        f"mkdir -p {folder}\n{write}\nchmod 755 {folder}/python; cp {folder}/bashrc {home}/.bashrc",
    )
    try:
        yield
    finally:
        # The other files of the folder stay, because processes that the agent has started may still
        # need them.
        on_host(lab, host, f"rm -f {home}/.bashrc {folder}/added.json")
