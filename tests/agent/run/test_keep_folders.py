"""Test the list of files in a keep folder (a folder for checkpoints) while a program saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.agent.run import keep_folders


def save(folder: Path, number: int) -> None:
    """Write a checkpoint as TensorFlow does: first its data, then the record that names it."""
    (folder / f"model.ckpt-{number}.data").write_text(str(number))
    (folder / "checkpoint.new").write_text(f'model_checkpoint_path: "model.ckpt-{number}"\n')
    (folder / "checkpoint.new").rename(folder / "checkpoint")


def test_list_has_the_files_that_its_record_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is saved after the folder was listed, and before its record is read."""
    folder = tmp_path / "job/keep/ckpt"
    folder.mkdir(parents=True)
    save(folder, 1)
    make_row, saved = keep_folders.make_row, [1]

    def make_row_later(root: str, path: str) -> keep_folders.FileRow | None:
        if path == "ckpt/checkpoint" and saved == [1]:
            saved.append(2)
            save(folder, 2)
        return make_row(root, path)

    monkeypatch.setattr(keep_folders, "make_row", make_row_later)
    paths = [row[0] for row in keep_folders.list_keep_rows(str(tmp_path), "job", ["ckpt"])]
    assert (folder / "checkpoint").read_text() == 'model_checkpoint_path: "model.ckpt-2"\n'
    assert paths == ["ckpt/checkpoint", "ckpt/model.ckpt-1.data", "ckpt/model.ckpt-2.data"]
