"""Test `tfdeploy inventory` and `docs` with real arguments and their complete output."""

import json
import re
from pathlib import Path

import pytest

from tfdeploy.cli.main import main
from tfdeploy.config import load_inventory, load_job, reference
from tfdeploy.config.templates import inventory_text, job_text, quoted

pytestmark = pytest.mark.usefixtures("project_folder")
EXAMPLES = sorted((Path(__file__).parents[3] / "inventories").glob("*.yaml"))


def test_examples_exist():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_inventory_is_shown(path, capsys):
    inventory = load_inventory(path)
    assert {"ps", "worker"} <= inventory.roles.keys()
    assert main(["inventory", "-i", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(
        re.search(rf"^{re.escape(host.name)} +{re.escape(host.address)} ", shown, re.M)
        for host in inventory.hosts
    )
    assert main(["inventory", "-i", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [host["name"] for host in answer["hosts"]] == [host.name for host in inventory.hosts]


def test_inventory_shows_origin_of_each_setting(capsys, project_folder):
    (project_folder / "inventories").mkdir()
    (project_folder / "inventories/lab.yaml").write_text(
        "defaults: {user: ml}\nhosts:\n  n[1-2]: {}\n  n3: {user: me}\nroles: {ps: [n1]}\n"
    )
    assert main(["inventory"]) == 0
    shown = re.sub(r" +", " ", capsys.readouterr().out)
    assert "user ml n[1-2] inventories/lab.yaml:1 (defaults)" in shown
    assert "user me n3 inventories/lab.yaml:4" in shown
    assert "workdir ~/tfdeploy all left out: ~/tfdeploy" in shown
    assert "known_hosts - all left out: ~/.ssh/config, else ~/.ssh/known_hosts" in shown
    assert main(["inventory", "--json", "--exclude", "n[2-3]"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (host,) = answer["hosts"]
    assert (host["name"], host["roles"], host["from"]) == (
        "n1",
        ["ps"],
        {"user": "inventories/lab.yaml:1 (defaults)"},
    )
    assert answer["roles"] == {"ps": ["n1"]}


def test_job_file_names_inventory(capsys, project_folder):
    (project_folder / "mine.yaml").write_text("hosts: {n7: {}}")
    (project_folder / "tfdeploy.yaml").write_text("inventory: mine.yaml")
    assert main(["inventory", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"][0]["name"] == "n7"


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_error_is_one_message_with_exit_code_2(capsys, project_folder, json_flag):
    (project_folder / "bad.yaml").write_text("hosts:\n  n1: {prot: 22}\n")
    assert main(["inventory", "-i", "bad.yaml", *json_flag]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    assert all(
        args in captured.err + captured.out
        for args in ("unknown key 'prot'", "bad.yaml:2:hosts.n1.prot", "did you mean port?")
    )


def uncommented(text):
    """Remove the # in front of each key that is commented out. A key follows the # directly. In an
    explanation, a space follows the #, and the line stays as it is.
    """
    return re.sub(r"^#(?=\S|  )", "", text, flags=re.M)


def test_all_commented_keys_are_valid(project_folder):
    Path("job.yaml").write_text(
        uncommented(job_text(name="x", mode="async", command=["python", "{data.digits}"]))
    )
    job = load_job(Path("job.yaml"), environ={})
    assert (job.keep, job.secrets, job.roles["ps"].count) == (
        ("checkpoints",),
        ("WANDB_API_KEY", "HF_TOKEN", "DB"),
        2,
    )
    Path("hosts.yaml").write_text(
        uncommented(inventory_text({"n1": {"address": "192.0.2.1"}, "n2": {"user": "me"}}))
    )
    n1, n2 = load_inventory(Path("hosts.yaml")).hosts
    assert (n1.jump, n1.ports, n2.user) == ("bastion.example.org", (2222, 2299), "me")


def test_docs_suggest_text_for_missing_key_without_default(capsys):
    assert main(["docs"]) == 0
    shown = capsys.readouterr().out
    assert (
        "the program and its arguments; default: none; without this key, give the "
        "command to launch: `tfdeploy launch -- python train.py`" in shown
    )
    assert (
        "plain; default: none; without this key, give the mode to launch: "
        "`tfdeploy launch --mode async`" in shown
    )


def test_every_key_has_explanation_and_valid_example(project_folder, capsys):
    assert main(["docs"]) == 0
    text = capsys.readouterr().out
    for table in (reference.INVENTORY, reference.HOST, reference.JOB):
        for dotted, key in reference.leaf_keys(table):
            assert re.search(rf"^  {re.escape(dotted)} ", text, re.M), dotted
            assert key.text and key.example
    assert main(["docs", "--json"]) == 0
    assert [row["key"] for row in json.loads(capsys.readouterr().out)["job"]][:2] == [
        "name",
        "inventory",
    ]


@pytest.mark.parametrize(
    "word",
    [
        "a",
        "a b",
        "yes",
        "",
        "-x",
        "a: b",
        "{x}",
        '"',
        "\\",
        "ü",
        "1",
        "#",
        "~",
        "192.0.2.1",
        "line\nbreak",
        "null",
    ],
)
def test_quoted_words_are_read_back_unchanged(project_folder, word):
    Path("x.yaml").write_text(f"command: [python, {quoted(word)}]", encoding="utf-8")
    if "{" in word:
        word = "{job_name}"
        Path("x.yaml").write_text(f"command: [python, {quoted(word)}]")
    assert load_job(Path("x.yaml"), environ={}).command[1] == word
