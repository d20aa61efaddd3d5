"""`tfdeploy VERB ...`: finds the verb, runs it, turns its error into words and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn


def program() -> NoReturn:
    """The installed command `tfdeploy`: exits at once when main has returned, without waiting for threads. Tearing down an
    interpreter with six hundred modules would take a fifth of a quick verb's time."""
    _drop_relative_path_entries()
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader has closed the pipe
    except OSError as error:
        with suppress(OSError):
            os.write(2, f"what was printed is not whole: {error.strerror}\n".encode())
        code = code or 1
    os._exit(code)


def _drop_relative_path_entries() -> None:
    """Remove relative entries of PATH, so that ssh, git and rsync never come from the current folder."""
    places = os.environ.get("PATH", "").split(os.pathsep)
    if not all(map(os.path.isabs, places)):
        kept = os.pathsep.join(filter(os.path.isabs, places))
        # Without PATH the system's default folders count. An empty PATH would mean the current folder.
        os.environ.pop("PATH", None)
        if kept:
            os.environ["PATH"] = kept


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code, as in tfdeploy/errors.py. Prints a traceback only for a bug (70)."""
    words = list(sys.argv[1:] if argv is None else argv)
    from tfdeploy.errors import TfdeployError

    try:
        return _run(words)
    except TfdeployError as error:
        return _show(error, words)
    except KeyboardInterrupt as interrupt:
        _ignore_ctrl_c()
        with suppress(OSError):  # the terminal has gone
            print("interrupted", file=sys.stderr, flush=True)
        return _interrupted(interrupt)
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except OSError as error:
        if error.errno == errno.EIO and error.filename is None:
            return 1  # the terminal was closed
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _bug()
        _drop_unwritten_output()
        print(f"this machine: {error.filename or 'where the output goes'}: {error.strerror}; free some space", file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001 - the one place where a bug becomes an exit code
        return _bug()


def _bug() -> int:
    import traceback

    traceback.print_exc()
    print("this is a bug in tfdeploy; the lines above say where", file=sys.stderr)
    return 70


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    from tfdeploy.cli.interrupts import Signalled, end_by_signal

    if isinstance(interrupt, Signalled):
        end_by_signal(interrupt.number)
    return 130


def _ignore_ctrl_c() -> None:
    """A second Ctrl-C while the process ends must not replace the exit code 130 by a death by signal."""
    import signal
    import threading

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["version"]):
        from tfdeploy import __version__

        print(f"tfdeploy {__version__}", flush=True)
        return 0
    import importlib

    from tfdeploy.cli.options import Parser, verb_first
    from tfdeploy.cli.verbs import MODULES, VERBS
    from tfdeploy.errors import UsageError

    words = verb_first(words)
    parser = Parser(prog="tfdeploy", description="TensorFlow clusters over plain SSH.", epilog="tfdeploy VERB --help says more.")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    verb = words[0] if words else ""
    if verb in VERBS:  # importing only this verb is quicker
        importlib.import_module("tfdeploy.cli." + MODULES.get(verb, verb)).add(verbs)
    else:
        _refuse_unknown(verb)
        for name, text in VERBS.items():
            verbs.add_parser(name, help=text)
    own, after = _split(words)
    args, unknown = parser.parse_known_args(own)
    if unknown:
        verbs.choices[verb].unknown(unknown, after) if verb in verbs.choices else parser.unknown(unknown)
    if not getattr(args, "run", None):
        parser.print_help(sys.stderr)
        if words:
            raise UsageError("no verb given", where="tfdeploy", next="tfdeploy --help")
        return 2
    code: int = args.run(args, after)
    sys.stdout.flush()
    return code


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before and after the first `--` (None where there is no `--`)."""
    if "--" not in words:
        return words, None
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def _refuse_unknown(verb: str) -> None:
    from tfdeploy.cli.verbs import NOT_BUILT, OTHER_NAMES, VERBS
    from tfdeploy.errors import UsageError

    if verb in NOT_BUILT:
        raise UsageError(f"`tfdeploy {verb}` is not built yet", where="tfdeploy", next="tfdeploy --help lists what is")
    if verb.startswith("-") and verb not in ("-h", "--help", "--version"):
        what = f"no verb behind {verb}: only common flags may stand before the verb"
        raise UsageError(what, where="tfdeploy", next=f"tfdeploy VERB {verb} ...")
    if verb and not verb.startswith("-"):
        from tfdeploy.cli.options import closest

        meant = OTHER_NAMES.get(verb) or closest(verb, VERBS)
        hint = f"did you mean `tfdeploy {meant}`?" if meant else "tfdeploy --help"
        raise UsageError(f"unknown verb {verb!r}", where="tfdeploy", next=hint)


def _show(error: Exception, words: list[str]) -> int:
    from tfdeploy.cli.flags import common_flags
    from tfdeploy.errors import TfdeployError
    from tfdeploy.ui.errors import show_error

    assert isinstance(error, TfdeployError)
    own = _split(words)[0]
    flags = common_flags(own)
    error.next = flags.typed(error.next) if error.next else None
    show_error(error, as_json=_wants_json(own), color=flags.color)
    return error.exit_code


def _wants_json(words: list[str]) -> bool:
    from itertools import pairwise

    from tfdeploy.cli.options import env_true

    return (
        any(word in words for word in ("--json", "--output=json", "-ojson"))
        or any(pair in (("--output", "json"), ("-o", "json")) for pair in pairwise(words))
        or env_true("json")
    )


def _drop_unwritten_output() -> None:
    """A buffer that could not be written would fail again at the end, with a second line."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _silence_stdout() -> None:
    """Keeps the interpreter from printing an error at exit: what is still in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
