"""Test that a plan has a note about checkpoints that no `keep` folder can hold."""

from __future__ import annotations

import pytest

from tfdeploy.planning.program import checkpoint_paths
from tfdeploy.planning.source import source


def notes(text: str) -> tuple[str, ...]:
    return checkpoint_paths.notes(source.read_program(("python", "train.py"), {"train.py": text}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "LOGS = '/tmp/mnist/1'\nSupervisor(logdir=LOGS)",
            "train.py:2 saves checkpoints in /tmp/mnist/1:",
        ),
        ("saver.save(sess, '/tmp/model.ckpt', global_step=step)", "in /tmp/model.ckpt:"),
        ("Supervisor(logdir=tempfile.mkdtemp())", "in a temporary folder:"),
        (
            "d = mkdtemp(prefix='x')\nwith MonitoredTrainingSession(checkpoint_dir=d): pass",
            "temporary",
        ),
        ("d = os.environ.get('OUT', '/out')\nModelCheckpoint(f'{d}/{epoch}')", "in /out:"),
        (
            "base = os.path.join('/tmp', 'ckpt')\n"
            "own = write_filepath(base + '/', task_id)\n"
            "CheckpointManager(checkpoint, directory=own)",
            "train.py:3 saves checkpoints in /tmp:",
        ),
        (
            "base = os.path.join(util.get_temp_dir(), 'ckpt')\nCheckpointManager(c, base, max_to_keep=1)",
            "in a temporary folder:",
        ),
    ],
)
def test_note_names_the_place_and_the_folder(text: str, expected: str) -> None:
    (note,) = notes(text)
    assert expected in note
    assert "`keep: [checkpoints]`" in note


@pytest.mark.parametrize(
    "text",
    [
        "Supervisor(logdir='train_logs')",
        "ModelCheckpoint(os.path.join('ckpts', '/x'))",
        "arrays = load('/data/x.npz')\nnp.save('predictions', arrays)",
        "MonitoredTrainingSession(checkpoint_dir=FLAGS.train_dir)",
        "x = load('/data/x')",
        "base = base + 'x'\nCheckpointManager(c, base)",
    ],
)
def test_other_paths_give_no_note(text: str) -> None:
    assert notes(text) == ()


def test_a_folder_is_named_once() -> None:
    text = "D = '/tmp/d'\nModelCheckpoint(D)\nBackupAndRestore(D)"
    assert len(notes(text)) == 1
