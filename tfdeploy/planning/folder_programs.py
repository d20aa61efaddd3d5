"""Finds the programs in a folder, and for each the values of a job file: mode, `keep`, data.

The functions get the texts of the folder's Python files, and examine their syntax trees.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.job import Mode
from tfdeploy.model.modes import rules_of
from tfdeploy.planning.flags import flag_definitions, flags, torch_launch
from tfdeploy.planning.flags.command_arguments import INPUT_NAME, OUTPUT_NAME
from tfdeploy.planning.flags.flag_definitions import Flag, Flags
from tfdeploy.planning.program import checkpoint_paths, servers
from tfdeploy.planning.program.mode_signs import find_signs, likely_mode
from tfdeploy.planning.source import python2, source
from tfdeploy.planning.source.expressions import argument, is_true, last_name, literal_text
from tfdeploy.planning.source.source import Program, is_main_block
from tfdeploy.text.allowed import NAME

# A program that imports one of these packages is taken for a program that trains a model.
_FRAMEWORK = re.compile(
    r"(?m)^\s*(?:import|from) (?:tensorflow|keras|tf_keras|torch|jax|sklearn|xgboost|lightgbm)\b"
)
# Texts that show that a program runs as several tasks, or starts other programs. A program that
# trains a model is taken for a program for one machine if it contains none of these texts and shows
# no mode.
_OTHER_TASKS = re.compile(
    r"""(?ix) \b(((global|local|node|machine)_)?rank|distributed|socket|subprocess|tpu|grpc|zmq|
    launch\w*(?=\ *\()|parameter.server)\b|world_size|task_(index|id)|job_name|TF_CONFIG|SLURM|
    cluster_?(spec|resolver)|num_(nodes|machines|hosts|processes)|process_(index|count|id)|
    _hosts\b|hostfile"""
)
_USUAL_NAMES = ("train", "main", "run")
_NO_PROGRAMS = ("setup", "conftest", "__init__")
# A program whose name contains one of these texts does not train: it uses a trained model.
_LATER_NAMES = ("eval", "test", "predict", "infer", "sample", "generate", "export", "serve")
_CHECKPOINT_NAME = re.compile(
    rf"{OUTPUT_NAME.pattern}|checkpoints?|ckpts?|default_root_dir|out|output|save|save_path"
    r"|checkpoint_path"
)
_PATH_NAME = re.compile("(?i)dir|path|folder|ckpt|checkpoint|out|save|keep")
# Matches a flag's value in an example command if a job file can use the value. Numbers, addresses,
# absolute paths, shell variables and texts to be replaced, such as PATH_TO_DATA, do not match.
_EXAMPLE_VALUE = re.compile(r"(?!.*([Pp]ath|[Yy]our)|[A-Z_]+\Z)(\.\.?/)*[A-Za-z][\w./*-]*")
# Finds the subcommand that trains. In argparse, it is the name of a subparser; in click, the name
# of a decorated function. A program with LightningCLI always has the subcommand `fit`.
_SUBCOMMAND = re.compile(
    r"""(?m)\.add_parser\(\s*["']([\w-]*(?:train|fit)[\w-]*)|"""
    r"""^@(?!click)\w+\.command\(.*\n(?:[@ )].*\n)*def (\w*(?:train|fit)\w*)|"""
    r"Lightning(?=CLI)"
)
# Finds a setting whose value may be a path. The setting is a line of YAML or JSON, a literal text
# in Python, or the default of a flag.
_SETTING = re.compile(
    r"""(?mix) (?:^\s*["']? (?=\w+["']?\ *:\ *\S+\s*(?:\#.*)?$) | \b (?=\w+\ *=) | (?<=["']--))
    (\w+) (?:["']?\ *:\ *["']? | (?:\ *= | ["'],.*\bdefault=)\ *
    (?:(?:os\.getenv|os\.environ\.get|(?:\w+\.)?Path)\((?:["']\w+["'],\ *)?)? ["'])
    (?!(?:null|none|true|false|yes|no)\b) ([\w./*-]+) (?![^"',\s)}])"""
)
# A folder is no data set if its name begins with one of these texts, such as logs or config.
_NO_DATA = re.compile("conf|cfg|script|doc|test|src|lib|log|out|ckpt|checkpoint|save|model|result")
# A function that takes the path of a folder and returns whether the folder contains files. It
# returns None if the folder contains Python files or does not exist.
FolderTest = Callable[[str], bool | None]


@dataclass(frozen=True)
class FolderProgram:
    """A program of the folder, with the values of its job file.

    `reason` names the code that shows the mode, such as "train.py:12 uses tf.train.Server". If the
    code has signs that do not decide the mode, such as signs of several modes or an import of ray,
    `mode` is None and `reason` names these signs. If the code has no sign, `reason` is empty, and
    `mode` is "local" or None.
    """

    path: str
    command: tuple[str, ...]
    mode: Mode | None
    reason: str
    keep: tuple[str, ...]  # folders to which the program writes checkpoints
    # (path in the folder, flag) of each data set. The flag is "" if the program finds the data set
    # without a flag.
    data: tuple[tuple[str, str], ...]
    # further flags: those that pass the rank, and those with values from an example of the command
    arguments: tuple[str, ...]
    uses_tensorflow: bool
    server_job: str = ""  # the job name of all servers that the program starts, if it is fixed

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables that the command needs: PYTHONPATH, if the command names
        a module in the folder `src`."""
        in_src = "-m" in self.command and f"src.{self.command[2]}" in self.path.replace("/", ".")
        return {"PYTHONPATH": "src"} if in_src else {}


def find_programs(
    sources: Mapping[str, str], documents: Mapping[str, str], has_files: FolderTest
) -> list[FolderProgram]:
    """Return the folder's programs, the most likely one first.

    `sources`: {path: text} of each Python file. `documents`: {path: text} of each shell script, and
    of each other file that may contain examples of commands, such as a README, or settings of the
    programs. If a shell script passes its arguments to a program, and a document names the script,
    the command of this program is `bash SCRIPT`.
    """
    examples = "\n".join(documents.values())
    sources = {path: python2.without_unparsable_lines(text) for path, text in sources.items()}
    commands = {path: _choose_command(path, text) for path, text in sources.items()}
    files = {**documents, **sources}
    for script in documents:
        started = source.read_program(("bash", script), files)
        line = started.script_line if script.endswith(".sh") and script in examples else None
        if line and line.passes_arguments:
            commands[started.path or ""] = "bash", script
    parsed = {path: source.read_program(commands[path], files) for path in sources}
    imported = {module.path for program in parsed.values() for module in program.modules[1:]}
    programs = [
        _describe_program(program, commands[path], examples + sources[path], has_files)
        for path, program in parsed.items()
        if program.modules and _is_startable(program, is_imported=path in imported)
    ]
    named = {path for path in sources if re.search(rf"python.* {re.escape(path)}\b", examples)}
    return sorted(programs, key=lambda each: _program_sort_key(each, each.path in named))


def _is_startable(program: Program, *, is_imported: bool) -> bool:
    """Return whether the file can be started as a program, and is not a test or a setup file."""
    stem = _stem(program.path or "")
    body = program.modules[0].tree.body
    if stem in _NO_PROGRAMS or stem.startswith("test_"):
        return False
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
    acts = any(not isinstance(each, definitions) for each in body[1:])
    return any(map(is_main_block, body)) or (
        not is_imported and (acts or any(sign.is_certain for sign in find_signs(program)))
    )


def _program_sort_key(program: FolderProgram, is_named: bool) -> tuple[object, ...]:
    path, stem = program.path, _stem(program.path)
    own = program.reason.startswith(f"{path}:")
    later = any(word in stem for word in _LATER_NAMES)
    unusual = 0 if stem in _USUAL_NAMES else 1 if "train" in stem else 2
    return (
        not program.reason,
        program.mode is None,
        program.server_job == "ps",
        later,
        not is_named,
        not own,
        not program.uses_tensorflow,
        path.count("/"),
        unusual,
        path,
    )


def _stem(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path))[0]


def _choose_command(path: str, text: str) -> tuple[str, ...]:
    """Return the command that starts a program.

    A program that imports the package that contains it is started as a module: `python -m MODULE`.
    If this package is in the folder `src`, MODULE does not contain `src`.
    """
    file = path.removesuffix(".py")
    for module in (file.removeprefix("src/"), file):
        package = module.rpartition("/")[0].partition("/")[0]
        own = rf"^\s*((from|import) {re.escape(package)}\b|from \.)"
        if package and re.search(own, text, re.MULTILINE):
            return "python", "-m", module.replace("/", ".")
    return "python", path


def _describe_program(
    program: Program, command: tuple[str, ...], text: str, has_files: FolderTest
) -> FolderProgram:
    signs = find_signs(program)
    mode = likely_mode(signs)
    if subcommand := _SUBCOMMAND.search(program.text):
        command = (*command, subcommand[1] or (subcommand[2] or "fit").replace("_", "-"))
    if mode is None:
        by_mode = {sign.modes[:1]: str(sign) for sign in reversed(signs)}
        reason = ", ".join(sorted(by_mode.values()))
        trains = _FRAMEWORK.search(program.text) and not _OTHER_TASKS.search(program.text)
        mode = "local" if trains and not signs else None
    else:
        fitting = [sign for sign in signs if mode in sign.modes]
        # The reason is the most specific sign: a sign that is no flag, and that allows the fewest
        # modes.
        reason = str(min(fitting, key=lambda sign: (sign.is_flag, len(sign.modes))))
    defined = tuple(_with_example_values(program, text))
    settings = (
        Flag("", "", dest=key, default=path) for key, path in _SETTING.findall(text + program.text)
    )
    keep, data = _find_checkpoint_folders_and_data(program, (*settings, *defined), has_files)
    values = {
        flag.spelling: flag.default
        for flag in defined
        if flag.empty and flag.default and flag.spelling not in data.values()
    }
    if mode is not None and rules_of(mode).ranks:
        words = torch_launch.missing_rank_words(program, command)[1]
        values |= dict(word.split("=", 1) for word in words)
    return FolderProgram(
        program.path or "",
        command,
        mode,
        reason,
        tuple(keep),
        tuple(data.items()),
        tuple(f"{spelling}={value}" for spelling, value in values.items()),
        program.imports_any("tensorflow", "keras", "tf_keras"),
        servers.only_server_job(program)[0],
    )


def _with_example_values(program: Program, text: str) -> Iterator[Flag]:
    """Yield the flags that the program defines, some with a value from an example in `text`.

    `text` contains example commands. If a flag has no default, its value in an example becomes its
    default. A required flag gets its value from any example. Any other flag gets its value only
    from the first example with flags, because later examples may test or export a model. Flags
    about the cluster are not changed.
    """
    # An example may name the package instead of the file, as the command of an installed program
    # often has the package's name.
    names = "|".join(map(re.escape, posixpath.splitext(program.path or "")[0].split("/")[-2:]))
    command = re.compile(rf"\b(?:{names})(?:\.py)? +([^`;&|\n]*)")
    # The examples are joined in reverse order, because the last value of a flag counts, and that
    # shall be the value of the first example.
    examples = command.findall(re.sub(r"\\\n|[\"']", "", text))
    values = flag_definitions.flags_in_command(tuple(" ".join(reversed(examples)).split()))
    first = next((each for each in examples if " --" in f" {each}"), "")
    first_values = flag_definitions.flags_in_command(tuple(first.split()))
    cluster = {flag.dest for flag in flags.cluster_flags(program).flags}
    for flag in flag_definitions.defined_flags(program):
        required = flag.call and is_true(argument(flag.call, "required"))
        value = (values if required else first_values).get(flag.spelling.lstrip("-"), "")
        fits = flag.empty and flag.dest not in cluster and _EXAMPLE_VALUE.fullmatch(value)
        yield replace(flag, default=value) if fits else flag
    if program.uses_any_name("HfArgumentParser"):
        # HfArgumentParser defines a flag for each field of a class. Some of these classes are in
        # its library, not in the folder, so their flags are known only from examples.
        for name, value in values.items():
            if _EXAMPLE_VALUE.fullmatch(value):
                yield Flag("", f"--{name}", default=value, dest=name, empty=True)


def _find_checkpoint_folders_and_data(
    program: Program, defined: Flags, has_files: FolderTest
) -> tuple[dict[str, None], dict[str, str]]:
    """Return (folders for checkpoints, {path of a data set: flag, or "" if it needs no flag}).

    Only folders that the program names are considered. An empty folder is for checkpoints, unless
    its name suggests data. An empty folder whose name suggests data is a data set only if a flag
    names it; otherwise the program may download the data itself.
    """
    folders = map(_top_folder, _checkpoint_paths(program, defined))
    # A name with a dot is the name of a file, not of a folder.
    keep = dict.fromkeys(filter(re.compile("[^.]+").fullmatch, folders))
    data: dict[str, str] = {}
    by_default = {
        posixpath.normpath(flag.default): flag.spelling for flag in defined if flag.spelling
    }
    others = [flag.default for flag in defined]
    others += [literal_text(node) or "" for node in program.find(ast.Constant)]
    for path in (*by_default, *map(_top_folder, others)):
        folder, flag = _top_folder(path), by_default.get(path, "")
        filled = has_files(path) if folder and folder not in keep else None
        name = flag_definitions.plain_name(flag or folder)
        if filled is False and not INPUT_NAME.fullmatch(name):
            keep[folder] = None
        elif (flag and filled is not None) or (
            filled and not (_NO_DATA.match(folder) or folder in map(_top_folder, data))
        ):
            data.setdefault(path, flag)
    return keep, data


def _checkpoint_paths(program: Program, defined: Flags) -> Iterator[str]:
    for flag in defined:
        # A flag train_dir names a folder for checkpoints, but a variable train_dir often names the
        # folder of the training images. So the name of a variable must match without "train".
        name = flag.dest.lower().removeprefix("" if flag.spelling else "train")
        if _CHECKPOINT_NAME.fullmatch(name):
            yield flag.default
    defaults = {flag.dest: flag.default for flag in defined if _PATH_NAME.search(flag.dest)}
    for path in checkpoint_paths.checkpoint_arguments(program):
        first = checkpoint_paths.first_part(path)
        for part in ast.walk(path):
            if isinstance(part, ast.expr):
                text = literal_text(part) or ""
                yield defaults.get(text or last_name(part), text if part is first else "")


def _top_folder(path: str) -> str:
    """Return the first folder of a relative path. For any other path, return ""."""
    folder = posixpath.normpath(path).split("/")[0]
    return folder if NAME.match(folder) else ""
