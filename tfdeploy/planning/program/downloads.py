"""Writes notes on data that a program loads but that its code folder does not contain.

For programs of the MNIST tutorial, TensorFlow 1 downloaded the files on each host. The replacement
module that tfdeploy supplies (runtime/supplied/examples) downloads nothing. Keras downloads data
sets into ~/.keras, so each host needs access to the internet.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterator

from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.source.entry_point import Command
from tfdeploy.planning.source.expressions import argument, last_name, literal_text
from tfdeploy.planning.source.origins import Origins
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used

_READER = "read_data_sets"
_FILE = "ubyte"  # is in the names of the files that the reader reads
# A path above the folder in which the program starts.
_ABOVE = re.compile(r"\.\./[\w./-]*\w")
_OF_TUTORIAL = ("examples.tutorials.mnist", "contrib.learn")


def notes(job: Job, program: Program, files: Collection[str]) -> Notes:
    """Return notes on data that the program may lack.

    If the job names a data set, only paths outside the code are noted. `files`: the paths of the
    code; empty if they are not known.
    """
    texts = [*_outside_path_notes(job, program)]
    if not job.data:
        texts += [*_mnist_notes(job, program, files), *_keras_dataset_notes(program)]
    return tuple(dict.fromkeys(texts))


def _outside_path_notes(job: Job, program: Program) -> Iterator[str]:
    """Yield a note on each path such as ../data/x.csv that leads out of the code folder."""
    named = [(job.command_place, word.rpartition("=")[2]) for word in job.command]
    for node in program.find(ast.Constant):
        parent = vars(node)["parent"]
        # In os.path.join(folder, "../x") and folder / "../x", the text is only the end of a path,
        # so it is skipped.
        if not isinstance(parent, ast.BinOp) and node not in getattr(parent, "args", ())[1:]:
            named.append((place_of(node), literal_text(node) or ""))
    for where, path in named:
        inside = posixpath.normpath(posixpath.join(job.cwd, path))
        if _ABOVE.fullmatch(path) and inside.startswith(".."):
            source = posixpath.relpath(f"{job.code}/{inside}", job.folder or job.code)
            yield (
                f"{where} names {path}, which is outside the code folder, so it is not sent; if "
                f"the program reads it, write `data: {{NAME: {source}}}`, and give the program "
                "{data.NAME} in its place"
            )


def _mnist_notes(job: Job, program: Program, files: Collection[str]) -> Iterator[str]:
    uses = tf_names_used.tensorflow_uses(program)
    if not files or not any(use.name.startswith(_OF_TUTORIAL) for use in uses):
        return
    flag_values = _flag_values(job.command, program)
    origins = Origins(program, flag_values)
    for call in program.find(ast.Call):
        named = argument(call, "train_dir", 0)
        if not named or last_name(call.func) != _READER or argument(call, "fake_data"):
            continue
        folders = {literal_text(value) for value in origins.assigned_values(named)}
        folders |= {flag_values.get(origin.dest) for origin in origins.origins_of(named)}
        known = [folder for folder in folders if folder]
        from_code = posixpath.join(job.cwd, *known)
        if len(known) == 1 and not _may_contain_mnist(from_code, files):
            yield _mnist_note(place_of(call), from_code)


def _flag_values(command: Command, program: Program) -> dict[str, str]:
    """Return {attribute name of a flag: the flag's value in the command, or else its default}.

    A flag is left out if neither its value nor its default is known.
    """
    definitions = flag_definitions.defined_flags(program)
    values = {flag.dest: flag.default for flag in definitions if flag.default}
    dests = {each.lstrip("-"): flag.dest for flag in definitions for each in flag.spellings}
    given = flag_definitions.flags_in_command(command)
    return values | {
        dests.get(name, flag_definitions.plain_name(name)): value for name, value in given.items()
    }


def _may_contain_mnist(folder: str, files: Collection[str]) -> bool:
    path = posixpath.normpath(folder)
    is_outside_or_top = path.startswith("..") or path == "."
    return is_outside_or_top or any(file.startswith(f"{path}/") and _FILE in file for file in files)


def _mnist_note(where: str, folder: str) -> str:
    """Return the note on MNIST files that the program expects in this folder.

    The note suggests a data set for the job's `data`. The name of this data set does not matter,
    because tfdeploy finds the files under any name.
    """
    advice = (
        f"put the four files of MNIST into {folder} of the code, or add `data: {{mnist: FOLDER}}`"
    )
    if folder.startswith(("/", "~")):
        advice = "add `data: {mnist: FOLDER}`, unless each host has this folder"
    return f"{where} reads MNIST from {folder}, and nothing is downloaded: {advice}"


def _keras_dataset_notes(program: Program) -> Iterator[str]:
    for use in tf_names_used.tensorflow_uses(program):
        parts = use.name.split(".")
        if parts[-1] == "load_data" and parts[-3:-2] == ["datasets"] and not use.is_guarded:
            yield (
                f"{use.where} loads keras.datasets.{parts[-2]}: a host downloads this data set if "
                "~/.keras/datasets lacks it. If the hosts have no network, put the data set into "
                "FOLDER/.keras/datasets, and write `data: {home: FOLDER}` and "
                '`env: {HOME: "{data.home}"}`'
            )
