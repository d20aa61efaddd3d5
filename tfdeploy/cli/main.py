"""Run `tfdeploy VERB ...`. An error becomes a message and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tfdeploy import __version__
from tfdeploy.errors import TfdeployError, UsageError


def program() -> NoReturn:
    """Run the installed command `tfdeploy`, and exit as soon as `main` has returned.

    The exit neither waits for threads nor tears down the interpreter. With six hundred loaded
    modules, the teardown would take a fifth of the time of a quick verb.
    """
    # Imports create many objects that are never freed. With the default threshold, Python would
    # search them for cyclic garbage a hundred times, which is 5 % of the time of a quick verb.
    gc.set_threshold(100_000)
    # With the default interval of 5 ms, the threads that connect to hosts would often wait for the
    # thread that reads the code. A sync to two hosts takes 4 % less time with 1 ms.
    sys.setswitchinterval(0.001)
    _open_closed_streams()
    _drop_relative_path_entries()
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader of stdout has closed the pipe
    except OSError as error:
        with suppress(OSError):
            os.write(2, f"the output is incomplete: {error.strerror}\n".encode())
        code = code or 1
    os._exit(code)


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream with which the program was started closed.

    Otherwise the stream is None, and the next file or socket that is opened gets its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the exit


def _drop_relative_path_entries() -> None:
    """Remove the relative folders from PATH.

    ssh, git and rsync are then never started from the current folder.
    """
    entries = os.environ.get("PATH", "").split(os.pathsep)
    if not all(map(os.path.isabs, entries)):
        absolute_path = os.pathsep.join(filter(os.path.isabs, entries))
        # If no entry is left, PATH is removed, because the system then searches its default
        # folders. With an empty PATH, it would search the current folder.
        os.environ.pop("PATH", None)
        if absolute_path:
            os.environ["PATH"] = absolute_path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return one of the exit codes that errors.py lists.

    A traceback is printed only for a bug in tfdeploy (exit code 70).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments in (["--version"], ["version"]):
            print(f"tfdeploy {__version__}", flush=True)
            return 0
        from tfdeploy.cli.command import run_command

        return run_command(arguments)
    except TfdeployError as error:
        from tfdeploy.cli.command import show_command_error

        return show_command_error(arguments, error)
    except KeyboardInterrupt as interrupt:
        from tfdeploy.cli.interrupts import report_interrupt

        return report_interrupt(interrupt)
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except OSError as error:
        if error.errno == errno.EIO and error.filename is None:
            return 1  # the terminal was closed
        if not _has_current_folder():
            from tfdeploy.cli.command import show_command_error

            missing = UsageError(
                "the current folder no longer exists", next="cd to a folder that exists"
            )
            return show_command_error(arguments, missing)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _report_bug()
        try:
            sys.stdout.flush()
        except OSError:
            _silence_stdout()
        what = f"{error.filename or 'the output'}: {error.strerror}"
        print(f"this machine: {what}; free some space", file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001 - the one place where a bug becomes an exit code
        return _report_bug()


def _has_current_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _report_bug() -> int:
    """Print the current exception with its traceback, and return the exit code of a bug."""
    sys.excepthook(*sys.exc_info())  # prints the traceback
    print("this is a bug in tfdeploy; the lines above say where", file=sys.stderr)
    return 70


def _silence_stdout() -> None:
    """Redirect stdout to /dev/null.

    Otherwise the interpreter would try to write the buffered output at exit, and print an error.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
