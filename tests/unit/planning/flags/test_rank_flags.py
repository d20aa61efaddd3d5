"""Test the note on a program that takes its rank from flags instead of environment variables."""

from __future__ import annotations

import pytest

from tfdeploy.planning.flags import torch_launch
from tfdeploy.planning.source import source

HEAD = "import argparse, os\nimport torch.distributed as dist\np = argparse.ArgumentParser()\n"
FLAGS = "".join(
    f"p.add_argument('{flag}', default={default})\n"
    for flag, default in {
        "--world-size": -1,
        "--rank": -1,
        "--dist-url": "'tcp://127.0.0.1:2'",
    }.items()
)
MEET = "dist.init_process_group('gloo', {}, rank=args.rank, world_size=args.world_size)\n"
# The example of PyTorch for ImageNet reads the variables only if --dist-url is env://.
IMAGENET = (
    f"{HEAD}{FLAGS}args = p.parse_args()\n"
    "if args.dist_url == 'env://':\n    args.rank = int(os.environ['RANK'])\n"
    + MEET.format("init_method=args.dist_url")
)
JAX = (
    "import argparse, jax\np = argparse.ArgumentParser()\n"
    "p.add_argument('--process_id', type=int)\nprocess_id = p.parse_args().process_id\n"
    "jax.distributed.initialize('n1:1234', num_processes=2, process_id=process_id)\n"
)


def rank_note(text: str, *words: str, before: tuple[str, ...] = ("python",)) -> str | None:
    command = (*before, "train.py", *words)
    return torch_launch.rank_flags_note(source.read_program(command, {"train.py": text}), command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            IMAGENET,
            '"--dist-url=tcp://{chief_host}:{chief_port}", "--world-size={world_size}", '
            '"--rank={rank}"',
        ),
        (
            IMAGENET.replace("'RANK'", "'PROC'").replace("'tcp://127.0.0.1:2'", "'env://'"),
            '"--world-size={world_size}", "--rank={rank}"',
        ),
        (JAX, '"--process_id={rank}"'),
        (
            IMAGENET.replace("default=-1", "required=True"),
            '"--dist-url=tcp://{chief_host}:{chief_port}", "--world-size={world_size}", '
            '"--rank={rank}"',
        ),
        (JAX.replace("num_processes=2, process_id=", "2, "), '"--process_id={rank}"'),
    ],
)
def test_program_that_takes_rank_from_flags_gives_note(text: str, words: str) -> None:
    assert f"write {words} into the command" in str(rank_note(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IMAGENET, ("--rank={rank}",)),
        (IMAGENET, ("--dist-url", "env://")),
        (IMAGENET.replace("'tcp://127.0.0.1:2'", "'env://'"), ()),
        (IMAGENET.replace("'--rank', default=-1", "'--rank', required=True"), ("--world-size=2",)),
        (IMAGENET.replace("args.rank,", "rank,").replace("'--rank'", "'--nr'"), ()),
        (
            IMAGENET.replace("'RANK'", "'PROC'")
            .replace("args.rank", "args.local_rank")
            .replace("'--rank'", "'--local_rank'"),
            (),
        ),
        (HEAD + "dist.init_process_group('gloo')\n", ()),
        # A function of the program itself, and arguments without a flag.
        (
            HEAD + FLAGS + "a = p.parse_args()\nutils.init_process_group(0, 1, 2, 3, a.rank)\n",
            (),
        ),
        (JAX.replace("'--process_id'", "'process_id'"), ()),
    ],
)
def test_program_that_reads_variables_or_has_its_flags_gives_no_note(
    text: str, words: tuple[str, ...]
) -> None:
    assert rank_note(text, *words) is None


def test_launcher_that_the_command_does_not_choose_gives_note() -> None:
    text = (
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--launcher', choices=['none', 'pytorch', 'slurm'], default='none')\n"
    )
    assert 'write "--launcher=pytorch" into the command' in str(rank_note(text))
    assert rank_note(text, "--launcher", "pytorch") is None
    assert rank_note(text.replace("launcher", "profiler")) is None


def test_launcher_that_numbers_the_processes_gives_no_note() -> None:
    assert (
        rank_note(IMAGENET, before=("torchrun", "--node_rank={rank}", "--nproc_per_node=4")) is None
    )


HOROVOD = "import horovod.torch as hvd\nhvd.init()\n"
BARE_JAX = "import jax\njax.distributed.initialize()\n"


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        (HOROVOD, (), "train.py:2 calls hvd.init, which does not read these variables: with"),
        (HOROVOD, ("HOROVOD_RANK",), None),
        (BARE_JAX, (), "train.py:2 calls jax.distributed.initialize without arguments; JAX"),
        (BARE_JAX, ("SLURM_PROCID",), None),
        (JAX, (), None),
        (HEAD + "dist.init_process_group()\n", (), None),
    ],
)
def test_program_for_another_launcher_gives_note(
    text: str, variables: tuple[str, ...], message: str | None
) -> None:
    program = source.read_program(("python", "train.py"), {"train.py": text})
    note = torch_launch.other_launcher_note(program, variables)
    assert note is None if message is None else str(note).startswith(message)
