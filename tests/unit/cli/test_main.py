"""The command line's frame: words to exit codes, errors without tracebacks, nothing heavy before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tfdeploy.cli.main import NOT_BUILT, main


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tfdeploy ")
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "launch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lanch"], "did you mean `tfdeploy launch`"),
        (["launch", "--mod", "async"], "did you mean --mode"),
        (["logs", "-n", "many"], "not a number"),
        (["stop", "--grace", "soon"], "not a duration"),
        (["launch", "--mode", "parallel"], "one of: async, sync, mirrored"),
        (["launch", "--mode", "syn"], "did you mean sync?"),
        (["exec", "uptime", "-s"], "next: tfdeploy exec -- uptime -s"),
        (["lab", "upp"], "did you mean up?"),
        (["lab", "up", "0"], "next: tfdeploy lab up 3"),
        *[([verb], "not built yet") for verb in NOT_BUILT],
    ],
)
def test_wrong_words_end_in_two_and_say_what_to_type(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == 2


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nfrom tfdeploy.cli.main import main\ntry: main(['launch', '--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'paramiko', 'fabric', 'rich', 'yaml', 'msgspec', 'tensorflow', 'cryptography'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
