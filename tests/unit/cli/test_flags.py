"""Test how the flags of each verb (subcommand) are read into the verb's typed record.

Every verb obeys --limit and --exclude, or refuses them. A bad file never causes a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.flags import CommonFlags, OneRunFlags, VerbFlags, add_verb
from tfdeploy.cli.main import main
from tfdeploy.cli.options import Parser
from tfdeploy.cli.project import adapt_advice
from tfdeploy.cli.verb_table import VERBS
from tfdeploy.cli.verbs import runs as verb_runs
from tfdeploy.errors import HostFailed
from tfdeploy.model.manifest import Manifest
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.store.places import state_root
from tfdeploy.store.runs import RunStore

HONOUR = (
    "clean",
    "check",
    "inventory",
    "trust",
    "sync",
    "setup",
    "launch",
    "logs",
    "status",
    "runs",
    "report",
    "audit",
    "fetch",
    "tensorboard",
    "exec",
    "ssh",
)
REFUSE = ("stop", "compare", "completion", "docs", "init", "lab")
# The arguments that a verb requires.
WORDS = {
    "ssh": ["n1"],
    "lab": ["up", "3"],
    "exec": ["--", "true"],
    "compare": ["digits-1", "digits-2"],
}
PLAN = Plan(
    run="digits-1",
    job="digits",
    mode="async",
    created=1.0,
    operator="me@here",
    release="c0ffee",
    command=("python", "train.py"),
    cluster={},
    hosts=(),
    tasks=(),
    deciding=(),
    flags_appended=(),
)
SETTINGS = (
    "INVENTORY",
    "JOB",
    "LIMIT",
    "EXCLUDE",
    "PARALLEL",
    "JSON",
    "VERBOSE",
    "QUIET",
    "COLOR",
    "YES",
)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run each test as a user without settings and files, except that the local store of runs has
    one run, which was launched yesterday.
    """
    for name in SETTINGS:
        monkeypatch.delenv(f"TFDEPLOY_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert RunStore(state_root(os.environ)).save(PLAN)


def module(verb: str) -> Any:
    return importlib.import_module("tfdeploy.cli.arguments." + verb)


def parse_verb(verb: str) -> tuple[argparse.Namespace, list[str] | None]:
    words = WORDS.get(verb, [])
    verb_words, after = (
        (words[: words.index("--")], words[words.index("--") + 1 :])
        if "--" in words
        else (words, None)
    )
    parser = Parser(prog="tfdeploy")
    add_verb(parser.add_subparsers(parser_class=Parser), verb, module(verb).Flags)
    return parser.parse_args([verb, *verb_words]), after


def flags_record(verb: str) -> VerbFlags:
    """Return the record of flags that the `run` function of the verb would get."""
    namespace, after = parse_verb(verb)
    flags: VerbFlags = namespace.read(namespace, after)
    return flags


def test_every_verb_obeys_or_refuses_limit_and_exclude() -> None:
    assert sorted((*HONOUR, *REFUSE)) == sorted(VERBS)
    for verb in VERBS:
        flags = flags_record(verb)
        assert (type(flags).no_selection_reason is None) == (verb in HONOUR), verb


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_typed_field_of_record(verb: str) -> None:
    flags = flags_record(verb)
    assert msgspec.convert(asdict(flags), type(flags)) == flags
    flags_of_argparse = set(vars(parse_verb(verb)[0])) - {"read"}
    assert flags_of_argparse <= set(asdict(flags))


@pytest.mark.parametrize("verb", REFUSE)
@pytest.mark.parametrize("flag", ["--limit", "--exclude"])
def test_refused_limit_or_exclude_is_named(
    verb: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *WORDS.get(verb, []), flag, "n3"]) == 2
    captured = capsys.readouterr()
    assert f"{flag} is not accepted" in captured.err
    assert not captured.out


def test_stop_is_refused_if_environment_limits_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFDEPLOY_LIMIT", "n3")
    assert main(["stop"]) == 2
    assert "TFDEPLOY_LIMIT is not accepted: a run is stopped as a whole" in capsys.readouterr().err
    # The verb `docs` contacts no host, so it ignores TFDEPLOY_LIMIT without an error.
    assert main(["docs"]) == 0


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"exec", "launch", "ssh"}))
def test_words_after_dashes_are_refused_by_verbs_without_command(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_words = [word for word in WORDS.get(verb, []) if word != "--"]
    assert main([verb, *verb_words, "--", "n3"]) == 2
    assert "after --" in capsys.readouterr().err


def test_environment_variables_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFDEPLOY_COLOR", "purple")
    assert main(["inventory"]) == 2
    assert "TFDEPLOY_COLOR" in capsys.readouterr().err


def nothing() -> None:
    return None


def a_folder() -> None:
    Path("hosts.yaml").mkdir()


def broken() -> None:
    Path("hosts.yaml").write_text("hosts: {n1: [")


def empty() -> None:
    Path("hosts.yaml").write_text("")


def not_text() -> None:
    Path("hosts.yaml").write_bytes(b"\xff\xfe\x00")


def unreadable() -> None:
    Path("hosts.yaml").symlink_to("/proc/self/mem")


@pytest.mark.fault(
    "1 an inventory that is missing, a folder, broken, empty, no text or not to be read, for "
    "every verb"
)
@pytest.mark.parametrize("state", [nothing, a_folder, broken, empty, not_text, unreadable])
@pytest.mark.parametrize("verb", [*HONOUR, "stop"])
@pytest.mark.parametrize("by_flag", [True, False])
def test_bad_inventory_is_usage_error_in_every_verb(
    verb: str,
    state: Callable[[], None],
    by_flag: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state()
    if not by_flag:
        monkeypatch.setenv("TFDEPLOY_INVENTORY", "hosts.yaml")
    verb_words = WORDS.get(verb, [])
    code = main([verb, *(["-i", "hosts.yaml"] if by_flag else []), *verb_words])
    stderr = capsys.readouterr().err
    assert code == 2, stderr
    assert stderr.count("error:") == 1 and "Traceback" not in stderr


@pytest.mark.fault("1 no job file, or a broken one, for every verb")
@pytest.mark.parametrize("job", [None, "mode: [", "nonsense: 1", ""])
@pytest.mark.parametrize(
    "verb", ["launch", "sync", "setup", "runs", "status", "logs", "stop", "fetch", "tensorboard"]
)
def test_bad_job_file_is_usage_error_in_every_verb(
    verb: str, job: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if job is not None:
        Path("tfdeploy.yaml").write_text(job)
    code = main([verb])
    stderr = capsys.readouterr().err
    assert code == 2, stderr
    assert stderr.count("error:") == 1 and "Traceback" not in stderr


def test_suggested_command_has_given_files(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = CommonFlags(inventory="my hosts.yaml", job="a.yaml")
    given_so = "tfdeploy trust -i 'my hosts.yaml' -j a.yaml --limit n1"
    assert flags.add_file_flags("tfdeploy trust --limit n1") == given_so
    assert (
        flags.add_file_flags("`tfdeploy runs` lists them")
        == "`tfdeploy runs -i 'my hosts.yaml' -j a.yaml` lists them"
    )
    # The suggestion adds no file that the user's command already names.
    assert (
        flags.add_file_flags("`tfdeploy inventory -i x.ini` or `tfdeploy runs -j b.yaml`")
        == "`tfdeploy inventory -j a.yaml -i x.ini` or "
        "`tfdeploy runs -i 'my hosts.yaml' -j b.yaml`"
    )
    for text in (
        "tfdeploy init writes one",
        "tfdeploy lab up 3",
        "tfdeploy launch --help",
        "192.0.2.1 and tfdeploy have no cipher",
    ):
        assert flags.add_file_flags(text) == text
    # The inventory is set in the environment, so the suggested command does not repeat it.
    monkeypatch.setenv("TFDEPLOY_INVENTORY", "my hosts.yaml")
    assert flags.add_file_flags("tfdeploy setup") == "tfdeploy setup -j a.yaml"
    assert CommonFlags().add_file_flags("tfdeploy setup") == "tfdeploy setup"


CONVERT = (
    "first `mkdir -p inventories && tfdeploy inventory -i {0} --output yaml > "
    "inventories/converted.yaml`, write the setting in this new file, "
    "and use -i inventories/converted.yaml"
)
OTHER_FORMATS = {
    "n1,n2": "",
    "hostfile": "n1 slots=2\n",
    "hosts.ini": "[worker]\nn1 ansible_user=ml\n",
    "hosts.yml": "worker: {hosts: {n1: {ansible_user: ml}}}\n",
    "own.yaml": "hosts: {n1: {}}\n",
}


@pytest.mark.parametrize(
    ("inventory", "advice", "expected"),
    [
        ("own.yaml", "set `python:` (own.yaml) to X", None),
        ("own.yaml", "write `workdir: /data` for n1", None),
        ("hosts.ini", "correct `address:` (hosts.ini:2)", "correct `ansible_host` (hosts.ini:2)"),
        ("hosts.ini", "check `user:` and `port:`", "check `ansible_user` and `ansible_port`"),
        (
            "hosts.yml",
            "write `python: PATH` for n1",
            "write `ansible_python_interpreter=PATH` for n1",
        ),
        (
            "hosts.ini",
            "set `workdir:` of n1",
            "set `workdir:` of n1; `workdir:` cannot be set in hosts.ini: " + CONVERT,
        ),
        ("hostfile", "correct `address:` (hostfile:1)", "correct `HOST` (hostfile:1)"),
        (
            "hostfile",
            "set `python:` (hostfile) to X",
            "set `python:` (hostfile) to X; `python:` cannot be set in hostfile: " + CONVERT,
        ),
        (
            "n1,n2",
            "write `gpus: none`",
            "write `gpus: none`; `gpus: none` cannot be set in n1,n2: " + CONVERT,
        ),
        ("hostfile", "write `keep: [ckpt]`, or another `name:`", None),
        ("missing.ini", "set `python:` to X", None),
    ],
)
def test_advice_names_settings_as_the_inventory_does(
    inventory: str, advice: str, expected: str | None
) -> None:
    for name, text in OTHER_FORMATS.items():
        if text:
            Path(name).write_text(text)
    translated = adapt_advice(CommonFlags(inventory=inventory), advice)
    assert translated == (expected or advice).format(inventory)


@pytest.mark.parametrize(
    "args", ["exec -i KH", "-i KH exec", "exec --inventory=KH", "exec -i KH --json"]
)
def test_error_suggests_command_with_given_files(
    args: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("KH", "k h.yaml") for word in args.split()]) == 2
    captured = capsys.readouterr()
    assert "tfdeploy exec -i 'k h.yaml' -- nvidia-smi" in captured.out + captured.err


def test_failure_to_read_hosts_suggests_command_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = "".join(f"  n{n}: {{address: 127.0.0.{n}, port: 9}}\n" for n in range(1, 4))
    Path("hosts.yaml").write_text(f"hosts:\n{closed}")
    assert main(["runs", "-i", "hosts.yaml"]) == 4
    stderr = capsys.readouterr().err
    assert all(f"[n{n}] there is no key to log in with" in stderr for n in range(1, 4))
    assert stderr.count("next: ") == 1


def test_shell_on_excluded_host_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("hosts.yaml").write_text("hosts: {n1: {address: 192.0.2.1}, n2: {address: 192.0.2.2}}")
    assert main(["ssh", "-i", "hosts.yaml", "--limit", "n2", "n1"]) == 2
    stderr = capsys.readouterr().err
    assert "host n1 is excluded" in stderr and "next: `tfdeploy ssh -i hosts.yaml n1`" in stderr


def test_refusal_of_limit_suggests_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stop", "-i", "hosts.yaml", "--limit", "n3"]) == 2
    assert "next: `tfdeploy stop -i hosts.yaml`\n" in capsys.readouterr().err
    monkeypatch.setenv("TFDEPLOY_EXCLUDE", "n3")
    assert main(["stop"]) == 2
    assert "next: `env -u TFDEPLOY_EXCLUDE tfdeploy stop`\n" in capsys.readouterr().err


@pytest.mark.parametrize("keep", ["", "keep: [checkpoints]\n"])
def test_launch_on_some_hosts_names_hosts_with_unknown_keep(
    keep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hosts.yaml").write_text(
        "hosts:\n" + "".join(f"  n{n}: {{address: 127.0.0.{n}, port: 9}}\n" for n in range(1, 5))
    )
    Path("tfdeploy.yaml").write_text(f"mode: local\ncommand: [python, train.py]\n{keep}")
    # No sshd listens here, so the launch fails, but it prints the note first.
    assert main(["launch", "-i", "hosts.yaml", "--limit", "n1", "--dry-run"]) in (2, 4)
    assert ("n[2-4] were not asked for newer checkpoints" in capsys.readouterr().err) == bool(keep)


def test_launch_of_a_job_of_another_folder_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hosts.yaml").write_text("hosts:\n  n1: {address: 127.0.0.1, port: 9}\n")
    store = RunStore(state_root(os.environ))
    (tmp_path / "other").mkdir()
    for name, warns in (("work", False), ("moved", False), ("other", True)):
        root = tmp_path / name
        assert store.save(PLAN, Manifest(root=str(root), release=PLAN.release, entries=()))
        for job, same in ((PLAN.job, True), ("fresh", False)):
            Path("tfdeploy.yaml").write_text(
                f"name: {job}\nmode: local\ncommand: [python, train.py]\n"
            )
            main(["launch", "-i", "hosts.yaml", "--dry-run"])
            warning = f"warning: the last run of job {job} was launched from {root}: "
            assert (warning in capsys.readouterr().err) == (warns and same)
    Path("tfdeploy.yaml").write_text(
        f"name: {PLAN.job}\nmode: local\ncommand: [python, train.py]\ncode: missing\n"
    )
    assert main(["launch", "-i", "hosts.yaml", "--dry-run"]) == 2


def test_variable_that_selects_hosts_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hosts.yaml").write_text("hosts:\n  n1: {address: 127.0.0.1, port: 9}\n")
    monkeypatch.setenv("TFDEPLOY_LIMIT", "n1")
    assert main(["inventory", "-i", "hosts.yaml"]) == 0
    assert "TFDEPLOY_LIMIT is set, so this applies: --limit n1" in capsys.readouterr().err


def test_unknown_state_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--state", "failed,broken"]) == 2
    assert (
        "'broken' is not a state of a run: starting, running, succeeded" in capsys.readouterr().err
    )


def test_different_plans_suggest_command_with_given_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("k.yaml").write_text("hosts: {n1: {address: 192.0.2.1}}")
    differ = HostFailed(
        "hosts hold 2 different plans of r1", next="tfdeploy stop r1 ends it on all of them"
    )
    monkeypatch.setattr(
        verb_runs, "list_runs", lambda *_: ([{"run": "r1", "started": None, "differ": differ}], {})
    )
    monkeypatch.setattr(verb_runs, "show_runs", lambda *_: None)
    assert main(["runs", "-i", "k.yaml"]) == 0
    assert "next: tfdeploy stop -i k.yaml r1 ends it" in capsys.readouterr().err


@pytest.mark.fault("8 a host of the run is no longer in the inventory")
@pytest.mark.parametrize("bound", [{"limit": "n3"}, {"exclude": "n1"}])
def test_limit_may_name_host_of_run_that_inventory_lacks(bound: dict[str, str]) -> None:
    Path("k.yaml").write_text("hosts: {n2: {address: 192.0.2.2}}")
    ran_on = tuple(
        HostPlan(
            host=name, address="192.0.2.1", mesh_port=2222, workdir="/w", python="/usr/bin/python3"
        )
        for name in ("n1", "n3")
    )
    assert RunStore(state_root(os.environ)).save(replace(PLAN, hosts=ran_on))
    # choose_run contacts no host here, so it needs no fleet.
    fleet: Any = None
    meant = choose_run(OneRunFlags(inventory="k.yaml", run_prefix="digits-1", **bound), fleet)
    assert (meant.plan.run, meant.only_hosts) == ("digits-1", {"n3"})
