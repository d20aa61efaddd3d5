"""Finds the paths to which a program saves checkpoints, and notes paths that `keep` cannot contain.

A `keep` folder is inside the program's folder. Checkpoints in a fixed path elsewhere, such as
/tmp/train_logs, remain on the host that wrote them. Checkpoints in a temporary folder are lost when
the task ends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning.source.expressions import argument, last_name, literal_text
from tfdeploy.planning.source.origins import Origins
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program

# {function: (position, name) of the argument that is a path for checkpoints}. In all other
# functions, this argument is named checkpoint_dir.
_CALLS = {
    "BackupAndRestore": (0, "backup_dir"),
    "CheckpointManager": (1, "directory"),
    "ModelCheckpoint": (0, "filepath"),
    "Supervisor": (None, "logdir"),
    "save": (1, "save_path"),
}
# The second argument of their `save` is an array, not a path.
_ARRAY_LIBRARIES = ("np", "numpy", "jnp")
# Matches an import of PyTorch's module for checkpoints in parts, but not of its submodules.
_SHARDED = re.compile(r"torch\.distributed(\.| import )checkpoint\b(?!\.)")
_TEMPORARY = re.compile(r"mkdtemp\(|temp_?dir\(")


def checkpoint_arguments(program: Program) -> Iterator[ast.expr]:
    """Yield each argument of a call that is a path for checkpoints."""
    for call in program.find(ast.Call):
        if isinstance(call.func, ast.Attribute) and last_name(call.func.value) in _ARRAY_LIBRARIES:
            continue
        position, name = _CALLS.get(last_name(call.func), (None, "checkpoint_dir"))
        if path := argument(call, name, position):
            yield path


def first_part(path: ast.expr) -> ast.expr:
    """Return the expression with which a path begins: `a` for os.path.join(a, "b") and a + "/b".

    For os.environ.get("NAME", path) and os.getenv, return the beginning of the default value.
    """
    match path:
        case ast.Call(func, [_, first]) if last_name(func) in ("get", "getenv"):
            return first_part(first)
        case ast.BinOp(left=first) | ast.Call(args=[first, *_]):
            return first_part(first)
        case ast.JoinedStr([first, *_]) | ast.FormattedValue(first):
            return first_part(first)
    return path


def notes(job: Job, program: Program, hosts: Collection[str]) -> Notes:
    """Return notes on checkpoints that are in no `keep` folder, or that the program deletes.

    There is a note on each absolute or temporary path to which the program saves. There also is a
    note if a job without `keep` has workers on several hosts that restart together, and if each of
    them saves a part of a checkpoint.
    """
    where_by_folder: dict[str, str] = {}
    origins = Origins(program, ())
    for path in checkpoint_arguments(program):
        for value in origins.assigned_values(path):
            for start in map(first_part, origins.assigned_values(first_part(value))):
                is_temporary = _TEMPORARY.search(ast.unparse(start))
                folder = "a temporary folder" if is_temporary else literal_text(start) or ""
                if is_temporary or folder.startswith("/"):
                    where_by_folder.setdefault(folder, place_of(path))
    texts = [
        f"{where} saves checkpoints in {folder}: tfdeploy does not fetch them, does not copy them "
        "to other hosts, and does not know whether training continues from them; let the program "
        "save in a folder of its own, such as checkpoints, and write `keep: [checkpoints]`"
        for folder, where in where_by_folder.items()
    ]
    texts += [
        f"{place_of(call)} BackupAndRestore deletes its checkpoint when the training succeeds, so "
        "the next launch cannot continue from it; delete_checkpoint=False would keep it"
        for call in program.find(ast.Call)
        if last_name(call.func) == "BackupAndRestore" and not argument(call, "delete_checkpoint")
    ]
    one_host_saves = rules_of(job.mode).supplied and len(hosts) > 1
    if (
        one_host_saves
        and job.restart_max
        and not (job.keep or where_by_folder)
        and program.uses_any_name(*_CALLS, "savez")
    ):
        texts.append(
            "the job has no `keep`: if one worker saves and all workers load, a restart finds the "
            "checkpoints on one host only; save them in a folder of the program, and name it, as "
            "in `keep: [checkpoints]`"
        )
    for node in program.imports if one_host_saves else ():
        if _SHARDED.search(ast.unparse(node)):
            texts.append(
                f"{place_of(node)} imports torch.distributed.checkpoint: if each rank saves its "
                "part of a checkpoint on its own host, no host has the whole checkpoint, and a "
                "restart fails: let rank 0 save it, or use a folder that all hosts share"
            )
    return tuple(texts)
