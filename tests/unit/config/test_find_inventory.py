"""Test which inventory is used. The flag, the environment variable or the job file may name it. If
none of them does, the only inventory that exists is used.
"""

import pytest

from tfdeploy.config import find_inventory
from tfdeploy.errors import ConfigError


class TestFinding:
    @pytest.fixture(autouse=True)
    def in_folder_of_inventories(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.cwd = tmp_path
        for name in ("flag.yaml", "environ.yaml", "job.yaml"):
            (tmp_path / name).write_text("hosts: {n1: {}}")

    def add(self, *names):
        (self.cwd / "inventories").mkdir(exist_ok=True)
        for name in names:
            (self.cwd / "inventories" / name).write_text("hosts: {n1: {}}")

    def find(self, flag=None, environ=None, job=None):
        named = {"TFDEPLOY_INVENTORY": environ} if environ else {}
        return find_inventory(flag, named, job, self.cwd).path.relative_to(self.cwd).as_posix()

    def test_order_of_sources(self):
        self.add("only.yaml")
        assert self.find("flag.yaml", "environ.yaml", "job.yaml") == "flag.yaml"
        assert self.find(None, "environ.yaml", "job.yaml") == "environ.yaml"
        assert self.find(None, None, str(self.cwd / "job.yaml")) == "job.yaml"
        assert self.find() == "inventories/only.yaml"

    def test_several_inventories_are_listed(self):
        self.add("a.yaml", "b.yml", "notes.txt", ".hidden")
        with pytest.raises(ConfigError, match="there are 2") as caught:
            self.find()
        assert caught.value.next == "give one of: -i inventories/a.yaml, -i inventories/b.yml"

    def test_error_without_inventory(self):
        with pytest.raises(ConfigError, match="no inventory") as caught:
            self.find()
        assert "tfdeploy init" in caught.value.next

    def test_named_inventory_must_exist(self):
        self.add("a.yaml")
        for options, source in (
            (("nowhere.yaml",), "-i"),
            ((None, "gone.yaml"), "$TFDEPLOY_INVENTORY"),
            # The environment variable is the default of the flag, so both have the same value.
            (("gone.yaml", "gone.yaml"), "$TFDEPLOY_INVENTORY"),
            ((None, None, "x"), "the job file"),
        ):
            with pytest.raises(ConfigError) as caught:
                self.find(*options)
            assert source in caught.value.what
            assert "inventories/a.yaml" in caught.value.next
