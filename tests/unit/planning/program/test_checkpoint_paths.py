"""Test that a plan has a note about checkpoints that no `keep` folder can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.program import checkpoint_paths
from tfdeploy.planning.source import source

JOB = Job(name="digits", mode="async", command=("python", "train.py"), code="/code")


def notes(text: str, job: Job = JOB, hosts: str = "ab") -> tuple[str, ...]:
    program = source.read_program(job.command, {"train.py": text})
    return checkpoint_paths.notes(job, program, hosts)


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
            "base = os.path.join(util.get_temp_dir(), 'ckpt')\n"
            "CheckpointManager(c, base, max_to_keep=1)",
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
    text = "D = '/tmp/d'\nModelCheckpoint(D)\nBackupAndRestore(D, delete_checkpoint=False)"
    assert len(notes(text)) == 1


def test_checkpoint_that_keras_deletes_is_named() -> None:
    (note,) = notes("\ncallbacks = [keras.callbacks.BackupAndRestore('backup')]\n")
    assert note.startswith("train.py:2 BackupAndRestore deletes its checkpoint when")
    assert notes("BackupAndRestore('backup', delete_checkpoint=False)") == ()


PLAIN = replace(JOB, mode="plain")


@pytest.mark.parametrize(
    ("job", "hosts", "text", "has_note"),
    [
        (PLAIN, "ab", "torch.save(state, 'last.pt')", True),
        (replace(JOB, mode="mirrored"), "ab", "np.savez(path + '.npz', w=w)", True),
        (PLAIN, "a", "torch.save(state, 'last.pt')", False),
        (PLAIN, "ab", "train()", False),
        (JOB, "ab", "saver.save(sess, 'x')", False),
        (replace(PLAIN, keep=("out",)), "ab", "torch.save(state, 'last.pt')", False),
        (replace(PLAIN, restart_max=0), "ab", "torch.save(state, 'last.pt')", False),
    ],
)
def test_checkpoints_that_one_host_has_but_all_workers_load(
    job: Job, hosts: str, text: str, has_note: bool
) -> None:
    assert [note.startswith("the job has no `keep`") for note in notes(text, job, hosts)] == [
        True
    ] * has_note
