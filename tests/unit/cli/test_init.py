"""Test `tfdeploy init`: what it reads in a folder, what it asks, and the files that it writes."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfdeploy.cli.main import main
from tfdeploy.config import load_inventory, load_job
from tfdeploy.config.file_schemas import file_schema_text
from tfdeploy.config.templates import inventory_text
from tfdeploy.tree.listing import list_code

pytestmark = pytest.mark.usefixtures("project_folder")


def test_init_writes_valid_files(capsys, project_folder):
    (project_folder / "program.py").write_text("")
    assert main(["init"]) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == ["tfdeploy.yaml", "inventories/hosts.yaml"]
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert (job.name, job.mode, job.command) == ("digits", "async", ("python", "program.py"))
    inventory = load_inventory(project_folder / "inventories/hosts.yaml")
    # Without roles, all hosts are workers in the modes that have no ps.
    assert [host.name for host in inventory.hosts] == ["n1", "n2"] and not inventory.roles


def test_init_takes_answers_from_command_line(project_folder):
    hosts = "ml@192.0.2.10,[2001:db8::1]:2200,one.example.org"
    assert (
        main(
            [
                "init",
                "--hosts",
                hosts,
                "--mode",
                "sync",
                "--command",
                "python -u 'my train.py' {task_index}",
            ]
        )
        == 0
    )
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert (job.mode, job.command) == ("sync", ("python", "-u", "my train.py", "{task_index}"))
    n1, n2, n3 = load_inventory(project_folder / "inventories/hosts.yaml").hosts
    assert (n1.user, n1.address, n2.address, n2.port, n3.address) == (
        "ml",
        "192.0.2.10",
        "2001:db8::1",
        2200,
        "one.example.org",
    )


def test_init_overwrites_nothing(capsys, project_folder):
    (project_folder / "tfdeploy.yaml").write_text("mine")
    assert main(["init"]) == 0
    assert capsys.readouterr().out.split() == ["inventories/hosts.yaml"]
    assert (project_folder / "tfdeploy.yaml").read_text() == "mine"
    assert main(["init", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "written": [],
        "kept": ["tfdeploy.yaml", "inventories/hosts.yaml"],
    }


@pytest.mark.parametrize(
    ("args", "expected_text"),
    [
        (["--hosts", "-oProxyCommand=x"], "--hosts"),
        (["--hosts", "a;b"], "--hosts"),
        (["--hosts", "a,a"], "--hosts"),
        (["--hosts", "a:b:c"], "--hosts"),
        (["--hosts", ","], "--hosts"),
        (["--command", "python 'x"], "--command"),
        (["--command", "python {x}"], "--command"),
        (["--command", ""], "--command"),
        (["--mode", "mirorred"], "--mode"),
        (["nowhere"], "mkdir nowhere"),
    ],
)
def test_init_refuses_and_writes_nothing(capsys, project_folder, args, expected_text):
    assert main(["init", *args]) == 2
    assert expected_text in capsys.readouterr().err
    assert list(project_folder.iterdir()) == []


def ask(project_folder, answers, *args):
    """Run `tfdeploy init` with a terminal as stdin and stderr, type the answers, and return the
    questions.
    """
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "tfdeploy", "init", *args]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        command,
        cwd=project_folder,
        env=env,
        stdin=terminal,
        stderr=terminal,
        stdout=subprocess.PIPE,
    ) as process:
        os.close(terminal)
        os.write(master, answers)
        output = b""
        try:
            while block := os.read(master, 4096):
                output += block
        # On Linux this error means that the program has closed the terminal.
        except OSError:
            pass
        assert process.wait(120) == 0
    os.close(master)
    return output.decode()


def test_init_names_schemas_for_editors_and_renews_them(project_folder):
    assert main(["init"]) == 0
    for file, name in (("tfdeploy.yaml", "job-file"), ("inventories/hosts.yaml", "inventory-file")):
        path = project_folder / file
        line = path.read_text().splitlines()[0]
        schema = path.parent / line.removeprefix("# yaml-language-server: $schema=")
        assert schema.read_text() == file_schema_text(name)
        schema.write_text("{}")
    assert main(["init"]) == 0
    assert schema.read_text() == file_schema_text(name)


def test_schemas_written_by_init_are_not_part_of_code(project_folder):
    assert main(["init"]) == 0
    assert list_code(str(project_folder))[0] == ["inventories/hosts.yaml", "tfdeploy.yaml"]


def test_init_adds_no_schema_to_files_that_it_did_not_write(project_folder):
    (project_folder / "tfdeploy.yaml").write_text("mode: async\n")
    (project_folder / "inventories").mkdir()
    (project_folder / "inventories/hosts.yaml").write_text("hosts: {n1: {}}\n")
    assert main(["init"]) == 0
    assert not (project_folder / ".tfdeploy").exists()


def test_init_asks_on_a_terminal(project_folder):
    output = ask(project_folder, b"192.0.2.7\nsync\n\n")
    assert "Hosts" in output and "Mode" in output and "Command" in output
    assert load_inventory(project_folder / "inventories/hosts.yaml").hosts[0].address == "192.0.2.7"
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "sync"


def test_init_uses_inventory_from_environment(project_folder, monkeypatch):
    lab = project_folder.parent / "lab.yaml"
    lab.write_text(inventory_text({"n1": {"address": "192.0.2.7"}}))
    monkeypatch.setenv("TFDEPLOY_INVENTORY", str(lab))
    output = ask(project_folder, b"sync\n\n\n")
    assert (
        "Hosts" not in output
        and "init writes no inventory, because TFDEPLOY_INVENTORY already gives 1 host: ../lab.yaml"
        in output
    )
    assert "next: `tfdeploy check`, `tfdeploy launch --dry-run`" in output
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "sync"
    assert not (project_folder / "inventories").exists()


def test_init_refuses_invalid_inventory_from_environment(project_folder, monkeypatch, capsys):
    monkeypatch.setenv("TFDEPLOY_INVENTORY", "no-such.yaml")
    assert main(["init"]) == 2
    assert (
        "no-such.yaml" in capsys.readouterr().err
        and not (project_folder / "tfdeploy.yaml").exists()
    )
    assert main(["init", "--hosts", "192.0.2.7"]) == 0
    assert load_inventory(project_folder / "inventories/hosts.yaml").hosts[0].address == "192.0.2.7"


def test_init_repeats_question_after_wrong_answer(project_folder):
    output = ask(project_folder, b"a;b\n192.0.2.7\nmirorred\nmirrored\npython 'x\npython x.py\n")
    asked = re.findall("Hosts|Mode|Command", output)
    assert asked == ["Hosts", "Hosts", "Mode", "Mode", "Command", "Command"]
    assert "did you mean mirrored?" in output
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).command == ("python", "x.py")


MIRRORED = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


def test_init_reads_program(capsys, project_folder):
    (project_folder / "fit.py").write_text(
        f"import argparse\nimport model\n{MIRRORED}"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--data', default='images')\n"
        "parser.add_argument('--model_dir', default='out/model')\n"
        "args = parser.parse_args()\n"
    )
    (project_folder / "model.py").write_text("import tensorflow\nprint('imported')\n")
    (project_folder / "images").mkdir()
    assert main(["init", "--hosts", "n1"]) == 0
    reason = "fit.py:4 uses tf.distribute.MultiWorkerMirroredStrategy"
    assert f"program: fit.py (mode mirrored: {reason})\n" in capsys.readouterr().err
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert (job.mode, job.keep) == ("mirrored", ("out",))
    assert job.command == ("python", "fit.py", "--data={data.images}")
    assert list(job.data) == ["images"]


@pytest.mark.parametrize(("flags", "is_told"), [((), True), (("--command", "python a.py"), False)])
def test_init_says_that_it_found_no_program(capsys, project_folder, flags, is_told):
    for path in project_folder.glob("*.py"):
        path.unlink()
    assert main(["init", "--hosts", "n1", *flags]) == 0
    text = "no program was found here; the job file names train.py: correct it\n"
    assert (text in capsys.readouterr().err) == is_told


@pytest.mark.parametrize(("command", "is_told"), [("", True), ("python a.py", False)])
def test_init_says_that_it_found_no_program_after_the_answers(project_folder, command, is_told):
    for path in project_folder.glob("*.py"):
        path.unlink()
    output = ask(project_folder, f"n1\n\n{command}\n".encode())
    assert ("names train.py: correct it" in output.partition("Command")[2]) == is_told
    assert "no program was found" not in output.partition("Command")[0]


def test_init_puts_folder_src_on_path_of_package_in_it(project_folder):
    package = project_folder / "src/quake"
    package.mkdir(parents=True)
    (package / "train.py").write_text(f"{MIRRORED}from quake import waves\n")
    (package / "waves.py").write_text("RATE = 100\n")
    assert main(["init", "--hosts", "n1"]) == 0
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert job.command == ("python", "-m", "quake.train")
    assert job.env == {"PYTHONPATH": "src"}


@pytest.mark.parametrize(
    ("call", "keep"),
    [
        ("tf.keras.callbacks.BackupAndRestore('backup')", ("backup",)),
        ("ModelCheckpoint('ckpts/{epoch}.h5')", ("ckpts",)),
        ("ModelCheckpoint(filepath='ckpts/a/b.h5')", ("ckpts",)),
        ("ModelCheckpoint('weights.h5')", ()),
        ("tf.train.CheckpointManager(checkpoint, 'saved', max_to_keep=3)", ("saved",)),
        ("tf.train.CheckpointManager(checkpoint, directory='/shared/saved')", ()),
    ],
)
def test_init_keeps_checkpoint_folders(
    project_folder: Path, call: str, keep: tuple[str, ...]
) -> None:
    (project_folder / "train.py").write_text(f"{MIRRORED}saver = {call}\n")
    assert main(["init", "--hosts", "n1"]) == 0
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).keep == keep


def test_init_asks_only_what_program_does_not_show(project_folder):
    (project_folder / "train.py").write_text(MIRRORED)
    output = ask(project_folder, b"192.0.2.7\n")
    assert re.findall("Hosts|Mode|Command", output) == ["Hosts"]
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "mirrored"


def test_init_does_not_ask_for_hosts_if_folder_has_inventory(project_folder):
    (project_folder / "train.py").write_text(MIRRORED)
    (project_folder / "inventories").mkdir()
    (project_folder / "inventories/hosts.yaml").write_text(
        "defaults: {python: ~/venv/bin/python}\nhosts: {n1: {}}\n"
    )
    output = ask(project_folder, b"")
    assert "Hosts" not in output and "hosts.yaml exists already" in output
    assert "next: `tfdeploy trust`, `tfdeploy check`, `tfdeploy launch --dry-run`" in output


def test_init_asks_which_program_to_use(project_folder):
    for name in ("fit.py", "tune.py"):
        (project_folder / name).write_text(MIRRORED)
    output = ask(project_folder, b"192.0.2.7\npython tune.py\n")
    assert "also there: tune.py" in output and "Command [python fit.py]" in output
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).command == ("python", "tune.py")


TWO_MODES = {
    "fit.py": MIRRORED,
    "tune.py": "import torch\ntorch.distributed.init_process_group('gloo')\n",
    "maze/play.py": "import tensorflow as tf\ntf.train.replica_device_setter()\nimport maze.map\n",
}


@pytest.mark.parametrize(
    ("command", "mode"),
    [
        ("python fit.py", "mirrored"),
        ("python -u ./tune.py --steps=3", "plain"),
        ("python -m maze.play", "async"),
    ],
)
def test_init_takes_mode_from_program_that_command_names(capsys, project_folder, command, mode):
    (project_folder / "maze").mkdir()
    for name, text in TWO_MODES.items():
        (project_folder / name).write_text(text)
    assert main(["init", "--hosts", "n1", "--command", command]) == 0
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == mode
    assert f"(mode {mode}: " in capsys.readouterr().err


def test_init_gives_ps_its_own_command_if_each_program_serves_one_job(project_folder):
    for role in ("ps", "worker"):
        (project_folder / f"{role}.py").write_text(
            f"import tensorflow as tf\ntf.train.Server(cluster, job_name='{role}', task_index=0)\n"
        )
    assert main(["init"]) == 0
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert job.command == ("python", "worker.py")
    assert job.roles["ps"].command == ("python", "ps.py")


def test_init_takes_mode_from_program_of_answer(project_folder):
    (project_folder / "maze").mkdir()
    for name, text in TWO_MODES.items():
        (project_folder / name).write_text(text)
    output = ask(project_folder, b"192.0.2.7\npython tune.py\n")
    assert re.findall("Hosts|Command", output) == ["Hosts", "Command"]
    assert "program: tune.py (mode plain: " in output
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "plain"


@pytest.mark.parametrize("module", ["tensorflow", "torch", "jax"])
def test_init_proposes_single_process_if_program_names_no_other_machine(
    capsys, project_folder, module
):
    (project_folder / "train.py").write_text(f"import {module}\nprint(1)")
    assert main(["init", "--yes"]) == 0
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "local"
    assert "(mode local: the program names no other machine)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import torch, socket",
        "import jax; launch(fit)",
        "import jax; jax.process_index()",
    ],
)
def test_init_says_that_single_process_is_a_guess(capsys, project_folder, text):
    (project_folder / "train.py").write_text(f"{text}\nprint(1)")
    assert main(["init", "--yes"]) == 0
    assert load_job(project_folder / "tfdeploy.yaml", environ={}).mode == "local"
    assert (
        "(mode local: a guess, because the program shows no mode. --mode changes it)"
        in capsys.readouterr().err
    )


def test_init_reads_examples_and_folders(project_folder):
    (project_folder / "src/ocr").mkdir(parents=True)
    (project_folder / "src/ocr/fit.py").write_text(
        "import argparse\nfrom . import net\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--images', required=True)\n"
        "for line in open('words/labels.txt'): net.fit(line, 'weights')\n"
    )
    (project_folder / "src/ocr/net.py").write_text("import tensorflow\n")
    for file in ("words/labels.txt", "scans/1.png", "weights/.gitkeep", "config/fit.yaml"):
        (project_folder / file).parent.mkdir()
        (project_folder / file).touch()
    (project_folder / "README.md").write_text(
        "    python -m ocr.fit \\\n        --images='scans/*.png'\n"
    )
    assert main(["init", "--yes"]) == 0
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert job.command == ("python", "-m", "ocr.fit", "--images=scans/*.png")
    assert (job.keep, set(job.data)) == (("weights",), {"scans", "words"})


def test_init_uses_inventory_of_another_tool(project_folder):
    (project_folder / "hosts.ini").write_text(
        "[worker]\ngpu[1:2] ansible_user=ml\n[ps]\nlogin ansible_host=192.0.2.1\n"
    )
    assert main(["init", "--hosts", "hosts.ini"]) == 0
    inventory = load_inventory(project_folder / "inventories/hosts.yaml")
    assert inventory.roles == {"ps": ("login",), "worker": ("gpu1", "gpu2")}
    assert (inventory.host("gpu2").user, inventory.host("login").address) == ("ml", "192.0.2.1")


def test_init_shows_misspelt_variables_and_reads_file_only_after_hosts(capsys, project_folder):
    (project_folder / "hosts.ini").write_text("[worker]\nn1 ansible_usr=ml\n")
    assert main(["init", "hosts.ini"]) == 2
    assert "next: `tfdeploy init --hosts hosts.ini` reads" in capsys.readouterr().err
    assert main(["init", "--hosts", "hosts.ini"]) == 0
    assert "warning: hosts.ini:2: the variable ansible_usr has" in capsys.readouterr().err


def test_init_explains_how_to_write_missing_hosts(capsys, project_folder):
    assert main(["init", "--hosts", "n1,n2"]) == 0
    assert main(["init", "--hosts", "n3"]) == 0
    file = "inventories/hosts.yaml"
    assert (
        f"{file} exists already and was not changed; to get a new one, type "
        f"`mv {file} {file}.old` and repeat the command\n"
        f"the hosts of --hosts were not written: add them to {file}\n"
    ) in capsys.readouterr().err
    (project_folder / file).rename(project_folder / f"{file}.old")
    assert main(["init", "--hosts", "n3"]) == 0
    assert [host.name for host in load_inventory(project_folder / file).hosts] == ["n3"]


def test_init_uses_hosts_of_inventory_flag(capsys, project_folder):
    assert main(["init", "-i", "n1,n2"]) == 0
    assert (
        "init writes no inventory, because -i already gives 2 hosts: n1,n2"
        in capsys.readouterr().err
    )


def test_init_finds_program_among_many_files_and_passes_data_only_on_request(project_folder):
    for number in range(600):
        (project_folder / f"a{number:04}.jpg").touch()
    (project_folder / "zebra").mkdir()
    (project_folder / "train.py").write_text(
        f"import argparse\n{MIRRORED}"
        "argparse.ArgumentParser().add_argument('--data_dir', default='zebra')\n"
    )
    assert main(["init", "--command", "python train.py"]) == 0
    job = load_job(project_folder / "tfdeploy.yaml", environ={})
    assert (job.mode, job.command, job.data) == ("mirrored", ("python", "train.py"), {})


def test_init_names_hosts_of_range(project_folder):
    assert main(["init", "--hosts", "ml@gpu[08-10]"]) == 0
    hosts = load_inventory(project_folder / "inventories/hosts.yaml").hosts
    assert [(host.name, host.address, host.user) for host in hosts] == [
        (name, name, "ml") for name in ("gpu08", "gpu09", "gpu10")
    ]


def test_init_with_hosts_lists_what_is_missing(capsys, project_folder):
    assert main(["init", "--hosts", "192.0.2.7"]) == 0
    stderr = capsys.readouterr().err
    assert (
        "in inventories/hosts.yaml, set `python:` of each host to a Python that has the packages "
        "of the program; then type `tfdeploy trust`, `tfdeploy check`" in stderr
    )
    assert "hosts in" not in stderr and "your hosts" not in stderr


def test_init_asks_nothing_with_yes(project_folder):
    assert "Hosts" not in ask(project_folder, b"", "--yes")
