"""Notes on data that a program expects, and that neither its code nor the job's `data` contains.

Programs of the MNIST tutorial name a folder, into which TensorFlow 1 downloaded the files on each host. tfdeploy's reader
(runtime/supplied/examples) downloads nothing. Keras downloads into ~/.keras, which needs a network.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Collection, Iterator

from tfdeploy.model.job import Job
from tfdeploy.planning.program import texts
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used

_READER = "read_data_sets"
_OF_TUTORIAL = ("examples.tutorials.mnist", "contrib.learn")


def notes(job: Job, program: Program, files: Collection[str]) -> tuple[str, ...]:
    """`files`: the paths of the code; empty: not known."""
    if job.data:
        return ()
    return tuple(dict.fromkeys((*_mnist(job, program, files), *_keras(program))))


def _mnist(job: Job, program: Program, files: Collection[str]) -> Iterator[str]:
    uses = tf_names_used.of_tensorflow(program)
    if not files or not any(use.name.startswith(_OF_TUTORIAL) for use in uses):
        return
    written = texts.read(job.command, program)
    for path, node in program.find(ast.Call):
        folder = _folder(node, written)
        if folder:
            from_code = posixpath.join(job.cwd, folder)
            if not _is_in(from_code, files):
                yield _mnist_note(f"{path}:{node.lineno}", from_code)


def _folder(call: ast.Call, written: texts.Texts) -> str | None:
    """The one folder that `read_data_sets(folder)` reads, or None."""
    if not ast.unparse(call.func).endswith(_READER) or any(word.arg == "fake_data" for word in call.keywords):
        return None
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "train_dir")]
    found = {text for node in given for text in written.of(node)}
    return found.pop() if len(found) == 1 else None


def _is_in(folder: str, files: Collection[str]) -> bool:
    path = posixpath.normpath(folder)
    return path.startswith("..") or any(path == "." or file.startswith(f"{path}/") for file in files)


def _mnist_note(where: str, folder: str) -> str:
    """A data set is found whatever folder the program names, so the note suggests one."""
    data = "`data: {mnist: FOLDER}`"
    remote = folder.startswith(("/", "~"))
    do = f"add {data}, unless each host has it" if remote else f"put its four files into {folder} of the code, or add {data}"
    return f"{where} reads MNIST from {folder}, and nothing is downloaded: {do}"


def _keras(program: Program) -> Iterator[str]:
    for use in tf_names_used.of_tensorflow(program):
        parts = use.name.split(".")
        if parts[-1] == "load_data" and parts[-3:-2] == ["datasets"] and not use.guarded:
            yield (
                f"{use.where} loads keras.datasets.{parts[-2]}: a host without it in ~/.keras/datasets downloads it; without a "
                'network: `data: {home: FOLDER}` with FOLDER/.keras/datasets, and `env: {HOME: "{data.home}"}`'
            )
