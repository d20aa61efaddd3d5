"""Test how a job file is read, and which errors an invalid job file causes."""

import shutil
from pathlib import Path

import pytest

from tfdeploy.config import check_command_words, check_source_hosts, find_job, load_job
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import DEFAULT_METRICS, DataSource, Job, RoleRule

CONTRACT = r"""
name: digits
inventory: inventories/lab.yaml
mode: async
code: .
data: {digits: ./data/digits, home: ~/big, abs: /srv/one.npz}
keep: [checkpoints, out/models/]
command: [python, train.py, "--data={data.digits}", "--steps=2000", --lr, 0.10, "{keep.out/models}"]
flags: auto
cluster: program
setup: {requirements: requirements.txt, wheels: ~/wheels}
compat: v1
roles: {ps: {count: 2}, worker: {per_host: 1, gpus: 1}}
env: {TF_CPP_MIN_LOG_LEVEL: "1", LR: 1e-3, N: 010,
      WHO: "{job_name}-{task_index}", EMPTY: "", OFF: "no"}
secrets: [WANDB_API_KEY]
ready: {after: 5s, timeout: 2m}
finish: {grace: 1.5h}
restart: {max: 5, backoff: [500ms, 2m], wait: 90m}
stall: {after: 90s, action: restart}
stop: {grace: 500ms}
logs: {max: 500MB}
metrics: {loss: 'cost=([\d.]+)', acc: 'acc (?:is )?([\d.]+)'}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function load(text).

    The function writes the text to tfdeploy.yaml in the current folder, which is named `job`, and
    returns the job that tfdeploy reads from this file.
    """
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def load(text):
        Path("tfdeploy.yaml").write_text(text)
        return load_job(Path("tfdeploy.yaml"), environ={"HOME": "/home/me"})

    return load


def test_example_of_contract(load, tmp_path):
    folder = str(tmp_path / "job")
    assert load(CONTRACT) == Job(
        name="digits",
        mode="async",
        command=(
            "python",
            "train.py",
            "--data={data.digits}",
            "--steps=2000",
            "--lr",
            "0.10",
            "{keep.out/models}",
        ),
        code=folder,
        inventory=f"{folder}/inventories/lab.yaml",
        data={
            "digits": DataSource(path=f"{folder}/data/digits"),
            "home": DataSource(path="/home/me/big"),
            "abs": DataSource(path="/srv/one.npz"),
        },
        keep=("checkpoints", "out/models"),
        flags="auto",
        compat="v1",
        cluster="program",
        setup_requirements=f"{folder}/requirements.txt",
        setup_wheels="/home/me/wheels",
        roles={"ps": RoleRule(count=2), "worker": RoleRule(per_host=1, gpus=1)},
        env={
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "LR": "1e-3",
            "N": "010",
            "WHO": "{job_name}-{task_index}",
            "EMPTY": "",
            "OFF": "no",
        },
        secrets=("WANDB_API_KEY",),
        ready_after_s=5.0,
        ready_timeout_s=120.0,
        finish_grace_s=5400.0,
        restart_max=5,
        restart_backoff_s=(0.5, 120.0),
        restart_wait_s=5400.0,
        same_error_ends=False,
        stall_after_s=90.0,
        stall_action="restart",
        stop_grace_s=0.5,
        logs_max_bytes=500_000_000,
        metrics={
            "step": DEFAULT_METRICS["step"],
            "loss": r"cost=([\d.]+)",
            "acc": r"acc (?:is )?([\d.]+)",
        },
        source="tfdeploy.yaml",
    )


def test_defaults(load, tmp_path):
    job = load("command: [python, train.py]\n")
    assert job == Job(
        name="job",
        mode=None,
        command=("python", "train.py"),
        code=str(tmp_path / "job"),
        metrics=DEFAULT_METRICS,
        source="tfdeploy.yaml",
    )


def test_role_with_own_program(load):
    text = "command: [python, train.py]\nroles: {ps: {command: [python, ps.py, '--n={num_ps}']}}\n"
    assert load(text).roles == {"ps": RoleRule(command=("python", "ps.py", "--n={num_ps}"))}


def test_role_by_name_used_in_program(load):
    text = (
        "command: [python, train.py]\nroles: {master: {gpus: 1}, worker: {as: work}, ps: {as: "
        "ps}}\n"
    )
    given = {
        "chief": RoleRule(gpus=1, called="master"),
        "worker": RoleRule(called="work"),
        "ps": RoleRule(called="ps"),
    }
    assert load(text).roles == given


def test_missing_command_must_be_given_after_dashes(load):
    assert load("mode: sync\n").command == ()


@pytest.mark.parametrize(
    ("text", "cwd"), [("src", "src"), ("./src//models/", "src/models"), (".", ""), ("", "")]
)
def test_start_folder_of_command(load, text, cwd):
    job = load(f"cwd: {text}\nkeep: [out]\ncommand: [python, train.py]\n")
    assert (job.cwd, job.keep, "cwd" in job.places) == (cwd, ("out",), bool(text))


def test_suggested_command_keeps_path_with_blanks(load):
    Path("my tools").mkdir()
    Path("my tools/train.py").touch()
    with pytest.raises(ConfigError) as refused:
        load("command: python -u my tools/train.py --steps=20\n")
    assert refused.value.next == ('write it as ["python", "-u", "my tools/train.py", "--steps=20"]')


REFUSED = {
    # {text of the job file: (part of the error, key, part of the suggested next step)}
    "comand: [a]": ("unknown key 'comand'", "comand", "did you mean command?"),
    "name: -x": ("name must be a name of letters", "name", None),
    "name: a/b": ("name must be a name of letters", "name", None),
    "mode: asynk": ("mode must be", "mode", "did you mean async?"),
    "setup: {reqs: r.txt}": ("unknown key 'reqs'", "setup.reqs", None),
    "setup: {wheels: ./wheels}": (
        "setup names no requirements",
        "setup",
        "requirements: requirements.txt",
    ),
    "setup: {}": ("setup names no requirements", "setup", "requirements: requirements.txt"),
    "setup: {requirements: r.txt, wheels: .}": (
        "wheels is the code folder itself",
        "setup.wheels",
        "of their own",
    ),
    "{setup: {requirements: r.txt, wheels: ./w}, data: {setup-wheels: ./d}}": (
        "taken by the folder of wheels",
        "data.setup-wheels",
        "name",
    ),
    "setup: r.txt": ("setup must be a mapping", "setup", None),
    "stall: {after: 5}": ("a duration with its unit", "stall.after", "5s, 2m"),
    "stall: {action: kill}": ("report", "stall.action", "restart"),
    "stall: {afer: 5m}": ("unknown key 'afer'", "stall.afer", "after?"),
    "compat: v2": ("compat must be auto | v1 | none", "compat", "one of"),
    "cluster: plan": ("cluster must be planned | program", "cluster", "did you mean planned?"),
    "restart: {max: -1}": ("from 0 to 1000", "restart.max", ""),
    "restart: {wait: soon}": ("a duration", "restart.wait", ""),
    "restart: {backoff: 5s}": ("a list of two durations", "restart.backoff", ""),
    "restart: {backoff: [1s]}": (
        "the first pause and the longest pause",
        "restart.backoff",
        "[1s, 60s]",
    ),
    "restart: {backoff: [60s, 1s]}": (
        "longer than the longest",
        "restart.backoff",
        "shorter one first",
    ),
    "restart: {mx: 0}": ("unknown key 'mx'", "restart.mx", "max?"),
    "command: python train.py --x": (
        "command must be a list of words",
        "command",
        '["python", "train.py", "--x"]',
    ),
    'command: "it\'s"': ("command must be a list of words", "command", "[python, train.py]"),
    "command: []": ("names no program", "command", "[python, train.py]"),
    "command: [-c, x]": ("names no program", "command", "[python, train.py]"),
    'command: [""]': ("names no program", "command", "[python, train.py]"),
    "command: [python, {job_name}]": ("must be a word", "command[1]", "quotes"),
    "command: [python, ~]": ("must be a word", "command[1]", "quotes"),
    'command: [python, "a\\0b"]': ("NUL", "command[1]", "remove"),
    'command: [python, "{jobname}"]': ("unknown placeholder {jobname}", "command[1]", "{job_name}"),
    'command: [python, "{data.x}"]': (
        "unknown placeholder {data.x}",
        "command[1]",
        "data: {x: ./x}",
    ),
    'command: [python, "{x"]': ("unclosed brace", "command[1]", "{{"),
    "flags: all": ("flags must be auto | classic | none", "flags", "one of"),
    "data: [a]": ("data must be a mapping", "data", None),
    "data: {../x: a}": ("'../x' is not a name", "data.../x", "data:"),
    "data: {x: -a}": ("does not begin with -", "data.x", None),
    "data: {x: }": ("x must be text", "data.x", None),
    "data: {x: {}}": ("neither `path` nor `from`", "data.x", "{path: ./images}"),
    "data: {x: {path: a, from: n1:/b}}": ("both `path` and `from`", "data.x", "one of them"),
    "data: {x: {pth: a}}": ("unknown key 'pth'", "data.x.pth", "did you mean path?"),
    "data: {x: {from: /b}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {from: n1:b}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {from: n1:~/b}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {from: n1:/a/../b}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {from: -n1:/b}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {from: n1:/}}": ("HOST:/absolute/path", "data.x.from", "n1:/srv/images"),
    "data: {x: {path: -a}}": ("does not begin with -", "data.x.path", None),
    "data: {x: {path: a, split: workers}}": (
        "split must be none | worker",
        "data.x.split",
        "did you mean worker?",
    ),
    "data: {x: {path: a, split: worker, others: some}}": (
        "others must be none | all",
        "data.x.others",
        "one of",
    ),
    "data: {x: {path: a, others: all}}": (
        "a data set that is split",
        "data.x.others",
        "split: worker",
    ),
    "data: {x: {path: a, via: scp}}": ("via must be auto | rsync", "data.x.via", "one of"),
    "data: {x: {from: n1:/b, via: rsync}}": ("does not work with `from`", "data.x.via", "remove"),
    "data: {x: {path: a, split: worker, via: rsync}}": (
        "does not work with `split`",
        "data.x.via",
        "remove",
    ),
    "data: {x.y: {path: a, split: worker}, x-y: {path: b, split: worker}}": (
        "both set TFDEPLOY_DATA_X_Y_PART",
        "data.x-y",
        "name",
    ),
    "data: {x: {path: ., split: worker}}": (
        "data set x is the code folder itself",
        "data.x",
        "in it",
    ),
    "data: {x: .}": ("data set x is the code folder itself", "data.x", "in it"),
    "keep: checkpoints": ("keep must be a list", "keep", "[checkpoints]"),
    "keep: [/tmp/x]": ("'/tmp/x' is not a folder inside the code", "keep[0]", "[checkpoints]"),
    "keep: [~/x]": ("'~/x' is not a folder inside", "keep[0]", "[checkpoints]"),
    "keep: [a/../../x]": ("is not a folder inside", "keep[0]", "[checkpoints]"),
    "keep: [.]": ("is not a folder inside", "keep[0]", "[checkpoints]"),
    "keep: [-x]": ("does not begin with -", "keep[0]", None),
    "keep: [a, a/b]": ("'a/b' and 'a' (line 1) overlap", "keep[1]", "one of them"),
    "keep: [a, ./a/]": ("overlap", "keep[1]", "one of them"),
    "{keep: [out], data: {x: out/digits}}": (
        "data set x and keep folder out overlap",
        "data.x",
        None,
    ),
    "cmd: [a]": ("unknown key 'cmd'", "cmd", "did you mean command?"),
    "workdir: src": ("unknown key 'workdir'", "workdir", "command, cwd, flags"),
    "cwd: /src": ("'/src' is not a folder inside the code", "cwd", "cwd: src"),
    "cwd: ~/src": ("is not a folder inside the code", "cwd", "cwd: src"),
    "cwd: src/../..": ("is not a folder inside the code", "cwd", "cwd: src"),
    'cwd: "{job_name}"': ("is not a folder inside the code", "cwd", "cwd: src"),
    "cwd: [src]": ("cwd must be text", "cwd", None),
    'cwd: ""': ("cwd must be a text", "cwd", None),
    "keep: [ck, -rf]": ("keep[1] must be a text", "keep[1]", None),
    "roles: {wroker: {}}": ("unknown role 'wroker'", "roles.wroker", "worker?"),
    "roles: {ps: 2}": ("ps must be a mapping", "roles.ps", "write ps: {count: 2}"),
    "roles: {worker: []}": ("must be a mapping such as", "roles.worker", "worker: [n2, n3] below"),
    "roles: {worker: 'a,b'}": ("must be a mapping such as", "roles.worker", "worker: [a, b] below"),
    "mode: DDP": ("not 'DDP'", "mode", "did you mean plain?"),
    "mode: pss": ("not 'pss'", "mode", "did you mean coordinator?"),
    "roles: {ps: {cuont: 2}}": ("unknown key 'cuont'", "roles.ps.cuont", "count?"),
    "roles: {ps: {count: -1}}": ("whole number", "roles.ps.count", None),
    "roles: {ps: {command: [python, '{nothing}']}}": (
        "unknown placeholder {nothing}",
        "roles.ps.command[1]",
        None,
    ),
    "roles: {ps: {command: python ps.py}}": (
        "a list of words",
        "roles.ps.command",
        '["python", "ps.py"]',
    ),
    "roles: {worker: {as: the-work}}": ("name of a variable", "roles.worker.as", None),
    "roles: {worker: {as: ps}}": (
        "worker and another role have the same name in the program: ps",
        "roles.worker",
        "own name",
    ),
    "roles: {worker: {as: a}, chief: {as: a}}": (
        "chief and another role have the same name in the program: a",
        "roles.chief",
        "own name",
    ),
    "roles: {chief: {}, master: {}}": (
        "master and chief are one role",
        "roles.master",
        "one of them",
    ),
    "roles: {mastr: {}}": ("unknown role 'mastr'", "roles.mastr", None),
    "roles: {worker: {per_host: 0}}": ("whole number from 1", "roles.worker.per_host", None),
    "env: {A: true}": ("A is a boolean", "env.A", '"true" with quotes'),
    "env: {A: no}": ("A is a boolean", "env.A", '"no" with quotes'),
    "env: {A: ~}": ("A must be text or a number", "env.A", '""'),
    "env: {A: [1]}": ("A must be text or a number", "env.A", None),
    "env: {A-B: 1}": ("'A-B' is not the name of a variable", "env.A-B", "letters"),
    "env: {TF_CONFIG: x}": ("TF_CONFIG is set by tfdeploy", "env.TF_CONFIG", "--dry-run"),
    "env: {CUDA_VISIBLE_DEVICES: 0}": ("is set by tfdeploy", "env.CUDA_VISIBLE_DEVICES", None),
    "env: {CUDA_DEVICE_ORDER: x}": ("is set by tfdeploy", "env.CUDA_DEVICE_ORDER", None),
    "env: {PYTHONUNBUFFERED: 0}": ("is set by tfdeploy", "env.PYTHONUNBUFFERED", None),
    "env: {TFDEPLOY_DATA_X_PART: 0}": (
        "is set by tfdeploy",
        "env.TFDEPLOY_DATA_X_PART",
        "--dry-run",
    ),
    "env: {no_proxy: a}": ("is set by tfdeploy", "env.no_proxy", None),
    "env: {no_grpc_proxy: a}": ("is set by tfdeploy", "env.no_grpc_proxy", None),
    "env: {TFDEPLOY_TASK_ANY: a}": ("is set by tfdeploy", "env.TFDEPLOY_TASK_ANY", None),
    'env: {GRPC_FAIL_FAST: ""}': ("aborts TensorFlow", "env.GRPC_FAIL_FAST", "use_caller"),
    'env: {A: "{x}"}': ("unknown placeholder {x}", "env.A", "{job_name}"),
    'env: {A: "a\\0b"}': ("NUL", "env.A", None),
    "secrets: {A: x}": ("A needs a source", "secrets.A", "{file:"),
    "secrets: [A=b]": ("not the name of a variable", "secrets[0]", None),
    "secrets: [A, A]": ("A stands twice", "secrets[1]", None),
    "secrets: [TF_CONFIG]": ("is set by tfdeploy", "secrets[0]", None),
    "{secrets: [A], env: {A: x}}": ("A is both in env and in secrets", "env.A", None),
    "ready: {after: 5}": ("after must be a duration with its unit, not '5'", "ready.after", "5s"),
    "ready: {after: -5s}": ("duration", "ready.after", "5s"),
    "ready: {timeout: 1y}": ("duration", "ready.timeout", "2m"),
    "ready: {after: 3m}": (
        "ready.after (180 s) is not shorter than ready.timeout (120 s)",
        "ready.after",
        "timeout: 2m",
    ),
    "ready: {timeout: 5s}": (
        "ready.after (5 s) is not shorter than ready.timeout (5 s)",
        "ready.timeout",
        "timeout: 2m",
    ),
    "ready: 5s": ("ready must be a mapping", "ready", None),
    "stop: {grace: 9999999999d}": ("at most 365d", "stop.grace", None),
    "stop: {grace: soon}": ("duration", "stop.grace", "1h"),
    "logs: {max: 1}": ("a size with its unit", "logs.max", "1GiB"),
    "logs: {max: 1KB}": ("from 64KiB", "logs.max", None),
    "logs: {max: 1gb}": ("a size with its unit", "logs.max", "500MB"),
    "metrics: {step: '('}": ("bad regular expression", "metrics.step", "Python's syntax"),
    "metrics: {step: 'x{99999999999}'}": (
        "bad regular expression: the repetition",
        "metrics.step",
        "Python's syntax",
    ),
    "metrics: {step: 'x'}": ("0 groups", "metrics.step", "(?:"),
    "metrics: {step: '(x)(y)'}": ("2 groups", "metrics.step", "(?:"),
    "metrics: {step: true}": ("step must be a regular expression", "metrics.step", None),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=REFUSED)
def test_refused_job_files(load, text, expected):
    message, path, next = expected
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert message in caught.value.what
    assert caught.value.where == f"tfdeploy.yaml:1:{path}"
    assert next is None or next in (caught.value.next or "")
    assert caught.value.exit_code == 2


def test_long_word_is_shortened_in_message(load):
    for text in (
        f"command: {'a b ' * 50_000}",
        f"{'k' * 90_000}: 1",
        f"env: {{A: '{{{'x' * 90_000}}}'}}",
        f"metrics: {{a: {'(' * 90_000}}}",
    ):
        with pytest.raises(ConfigError) as caught:
            load(text)
        error = caught.value
        assert max(map(len, (error.what, error.where, error.next))) < 1100


def test_too_many_keep_folders_are_refused(load):
    with pytest.raises(ConfigError, match="20,000 folders, but at most 1,000"):
        load("keep: [" + "".join(f"d{number}, " for number in range(20_000)) + "]")


def test_checkpoint_file_in_keep_is_refused(load):
    with pytest.raises(
        ConfigError, match=r"`keep` names folders, and out/snapshot\.pt is the name"
    ):
        load("keep: [out/snapshot.pt]")


def test_warnings_of_re_are_not_shown(load):
    # In these tests a warning is an error, so the pattern must compile without a warning.
    assert load("metrics: {a: '[[x](y)'}").metrics["a"] == "[[x](y)"


def test_folder_name_that_is_no_job_name(tmp_path):
    folder = tmp_path / "my job"
    folder.mkdir()
    (folder / "tfdeploy.yaml").write_text("mode: async")
    with pytest.raises(ConfigError, match="'my job' cannot be the job's name") as caught:
        load_job(folder / "tfdeploy.yaml", environ={})
    assert "name: digits" in caught.value.next
    (folder / "tfdeploy.yaml").write_text("name: mine")
    assert load_job(folder / "tfdeploy.yaml", environ={}).name == "mine"


def test_data_set_next_to_code_is_outside_code(load, tmp_path):
    data = load("data: {x: ../x, y: ./a/../y}").data
    assert data == {
        "x": DataSource(path=str(tmp_path / "x")),
        "y": DataSource(path=str(tmp_path / "job" / "y")),
    }


def test_data_set_as_mapping(load, tmp_path):
    text = (
        "data: {a: {path: ./x}, b: {path: ~/x, split: worker, others: all}, c: {from: "
        "n1:/srv//c/}, d: {path: x, via: rsync}}"
    )
    folder = str(tmp_path / "job")
    assert load(text).data == {
        "a": DataSource(path=f"{folder}/x"),
        "b": DataSource(path="/home/me/x", split="worker", others="all"),
        "c": DataSource(path="/srv/c", from_host="n1"),
        "d": DataSource(path=f"{folder}/x", via="rsync"),
    }


def test_data_set_from_unknown_host_is_refused(load):
    job = load("data:\n  a: ./x\n  b: {from: gpu1:/srv/b, split: worker}\n")
    check_source_hosts(job, Inventory((Host(name="gpu1", address="192.0.2.1"),)))
    with pytest.raises(ConfigError, match="data set b comes from gpu1") as caught:
        check_source_hosts(
            job,
            Inventory(
                (Host(name="gpu01", address="192.0.2.1"), Host(name="n2", address="192.0.2.2"))
            ),
        )
    assert (caught.value.exit_code, caught.value.where) == (2, "tfdeploy.yaml:3:data.b")
    assert caught.value.next == "did you mean gpu01?"


def test_data_set_that_links_to_code_is_refused(load, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "job")
    with pytest.raises(ConfigError, match="is the code folder itself"):
        load(f"data: {{x: {tmp_path}/link}}")


def test_search_for_job_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no job file") as caught:
        find_job(None, tmp_path)
    assert str(caught.value.where).startswith(
        f"tfdeploy.yaml in {tmp_path}"
    ) and "tfdeploy init" in str(caught.value.next)
    (tmp_path / "tfdeploy.yml").write_text("")
    with pytest.raises(ConfigError) as caught:
        find_job(None, tmp_path)
    assert caught.value.next == "-j tfdeploy.yml"
    (tmp_path / "sub").mkdir()
    for path in ("tfdeploy.yaml", "sub/tfdeploy.yaml", "other.yaml"):
        (tmp_path / path).write_text("mode: async")
    assert find_job(None, tmp_path).path == tmp_path / "tfdeploy.yaml"
    assert find_job("other.yaml", tmp_path).path == tmp_path / "other.yaml"
    assert find_job("sub", tmp_path).path == tmp_path / "sub/tfdeploy.yaml"
    with pytest.raises(ConfigError, match="no job file"):
        find_job("nowhere.yaml", tmp_path)


def test_words_after_dashes(load):
    job = load("data: {d: x}\nkeep: [k]\n")
    check_command_words(("python", "train.py", "{data.d}", "{keep.k}", "{task_index}"), job)
    for words in ((), ("",), ("-c",), ("python", "{x}"), ("python", "{")):
        with pytest.raises(UsageError):
            check_command_words(words, job)


def test_digits_example_is_read(tmp_path):
    example = Path(__file__).parents[3] / "examples/digits/tfdeploy.yaml"
    shutil.copy(example, tmp_path / "tfdeploy.yaml")
    assert load_job(tmp_path / "tfdeploy.yaml", environ={}).name == "digits"
