"""Test cluster flags with unusual names. tfdeploy recognises such a flag by how the program uses
the flag's value.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.flag_programs import (
    ARGS,
    CLUSTER,
    GIVEN,
    HEAD,
    choose_flags,
    chosen_arguments,
    gathering_program,
)
from tfdeploy.model.job import Job
from tfdeploy.planning.flags import appended_flags
from tfdeploy.planning.source import source

IDENTITY = {
    "a role and an index of one's own": (
        ARGS +
            "p.add_argument('--who')\np.add_argument('--number', type=int)\nargs = "
            "p.parse_args()\n" + CLUSTER
        + "s = tf.train.Server(cluster, job_name=args.who, task_index=args.number)",
        ("--who=worker", "--number=1"),
    ),
    "by position, through names and int()": (
        ARGS +
            "p.add_argument('-w', '--who', dest='w')\np.add_argument('--number')\nargs = "
            "p.parse_args()\n" + CLUSTER
        + "job, i = args.w, int(args.number)\ns = tf.distribute.Server(cluster, job, i)",
        ("--who=worker", "--number=1"),
    ),
    "through the parameters of a function": (
        "F = tf.app.flags\nF.DEFINE_string('node', '', '')\nF.DEFINE_integer('node_id', 0, "
        "'')\nFLAGS = F.FLAGS\n" + CLUSTER
        +
            "def serve(name, index):\n  return tf.train.Server(cluster, job_name=name, "
            "task_index=index)\n"
        "def main(_):\n  serve(FLAGS.node, index=FLAGS.node_id)\ntf.app.run()",
        ("--node=worker", "--node_id=1"),
    ),
    "kept in an object": (
        ARGS + "p.add_argument('--who')\np.add_argument('--number', type=int)\n"
        "class Node:\n  def __init__(self, args):\n    self.job = args.who\n    self.task = "
        "args.number\n" + CLUSTER
        +
            "n = Node(p.parse_args())\ns = tf.train.Server(cluster, job_name=n.job, "
            "task_index=n.task)",
        ("--who=worker", "--number=1"),
    ),
    "absl's holders": (
        "from absl import flags\nW = flags.DEFINE_string('who', None, '')\nN = "
        "flags.DEFINE_integer('number', 0, '')\n" + CLUSTER
        + "s = tf.train.Server(cluster, job_name=W.value, task_index=N.value)",
        ("--who=worker", "--number=1"),
    ),
    "click": (
        "import click\n" + CLUSTER +
            "@click.command()\n@click.option('--who')\n@click.option('--number', "
            "type=int)\n"
        "def main(who, number):\n  s = tf.train.Server(cluster, job_name=who, "
        "task_index=number)\nmain()",
        ("--who=worker", "--number=1"),
    ),
    "vars() and getattr()": (
        ARGS +
            "p.add_argument('--who')\np.add_argument('--number', type=int)\na = "
            "p.parse_args()\nopts = vars(a)\n" + CLUSTER
        + "s = tf.train.Server(cluster, job_name=opts['who'], task_index=getattr(a, 'number'))",
        ("--who=worker", "--number=1"),
    ),
    "compared with the roles": (
        ARGS +
            "p.add_argument('--as')\np.add_argument('--number', type=int)\nargs = "
            "vars(p.parse_args())\n" + CLUSTER
        +
            "if args['as'] == 'ps':\n  s = tf.train.Server(cluster, job_name='ps', "
            "task_index=args['number'])\n"
        "else:\n  s = tf.train.Server(cluster, job_name='worker', task_index=args['number'])",
        ("--as=worker", "--number=1"),
    ),
    "--job=worker:1": (
        ARGS + "p.add_argument('--job')\nname, index = p.parse_args().job.split(':')\n" + CLUSTER
        + "s = tf.train.Server(cluster, job_name=name, task_index=int(index))",
        ("--job=worker:1",),
    ),
    "--task=worker/1": (
        "F = tf.app.flags\nF.DEFINE_string('task', '', '')\n" + CLUSTER +
            "parts = "
            "F.FLAGS.task.split('/')\n"
        "s = tf.train.Server(cluster, job_name=parts[0], task_index=int(parts[1]))",
        ("--task=worker/1",),
    ),
    "in the TF_CONFIG that it writes": (
        ARGS +
            "p.add_argument('--who')\np.add_argument('--number', type=int)\na = "
            "p.parse_args()\nimport os\n"
        "os.environ['TF_CONFIG'] = json.dumps({'cluster': {'ps': ['x:1'], 'worker': ['y:1']}, "
        "'task': {'type': a.who, 'index': a.number}})",
        ("--who=worker", "--number=1"),
    ),
    "words by hand": (
        CLUSTER + "name = sys.argv[1]\ntask = int(sys.argv[2])\n"
        "s = tf.train.Server(cluster, job_name=name, task_index=task)",
        ("worker", "1"),
    ),
    "words by hand, the index first": (
        CLUSTER + "s = tf.train.Server(cluster, job_name=sys.argv[2], task_index=int(sys.argv[1]))",
        ("1", "worker"),
    ),
    "words by hand, unpacked": (
        CLUSTER +
            "_, name, index = sys.argv\ns = tf.train.Server(cluster, job_name=name, "
            "task_index=int(index))",
        ("worker", "1"),
    ),
    "words by hand, from a list of one's own": (
        CLUSTER +
            "a = sys.argv[1:]\ns = tf.train.Server(cluster, "
            "job_name=a[0], task_index=int(a[1]))",
        ("worker", "1"),
    ),
    "words by hand, a slice": (
        CLUSTER +
            "name, index = sys.argv[1:3]\ns = tf.train.Server(cluster, job_name=name, "
            "task_index=int(index))",
        ("worker", "1"),
    ),
    "words by hand, handed to main": (
        CLUSTER +
            "def main(name, index):\n  tf.train.Server(cluster, job_name=name, "
            "task_index=index).join()\n"
        "if __name__ == '__main__':\n  main(sys.argv[1], int(sys.argv[2]))",
        ("worker", "1"),
    ),
    "positional arguments": (
        ARGS +
            "p.add_argument('role', choices=['ps', 'worker'])\np.add_argument('number', "
            "type=int)\na = p.parse_args()\n"
        + CLUSTER + "s = tf.train.Server(cluster, job_name=a.role, task_index=a.number)",
        ("worker", "1"),
    ),
    "a role by its name alone": (
        ARGS +
            "p.add_argument('--role', choices=['ps', 'worker'])\np.add_argument('--task_number', "
            "type=int)\n" + CLUSTER,
        ("--role=worker", "--task_number=1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), IDENTITY.values(), ids=IDENTITY)
def test_identity_of_task(job: Job, text: str, expected: tuple[str, ...]) -> None:
    assert chosen_arguments(job, text) == expected


def addresses(definitions: str, cluster: str) -> str:
    return (
        ARGS
        + definitions
        + "\np.add_argument('--job_name')\np.add_argument('--task_index', type=int)\nargs = "
        "p.parse_args()\n"
        f"s = tf.train.Server({cluster}, job_name=args.job_name, task_index=args.task_index)"
    )


TWO = "p.add_argument('--servers')\np.add_argument('--machines')"
ADDRESSES = {
    "commas": (
        addresses(TWO,
            "tf.train.ClusterSpec({'ps': args.servers.split(','), 'worker': "
            "args.machines.split(',')})"),
        ("--servers=a:1,b:2", "--machines=c:3,d:4"),
    ),
    "semicolons": (
        addresses(TWO,
            "tf.train.ClusterSpec({'ps': args.servers.split(';'), 'worker': "
            "args.machines.strip().split(';')})"),
        ("--servers=a:1;b:2", "--machines=c:3;d:4"),
    ),
    "blanks": (
        addresses(TWO, "{'ps': args.servers.split(), 'worker': args.machines.split(' ')}"),
        ("--servers=a:1 b:2", "--machines=c:3 d:4"),
    ),
    "JSON lists": (
        addresses(TWO,
            "tf.train.ClusterSpec({'ps': json.loads(args.servers), 'worker': "
            "ast.literal_eval(args.machines)})"),
        ('--servers=["a:1", "b:2"]', '--machines=["c:3", "d:4"]'),
    ),
    "stripped one by one": (
        addresses(TWO, "dict(ps=[h.strip() for h in args.servers.split(',')], "
                       "worker=list(map(str.strip, args.machines.split(','))))"),
        ("--servers=a:1,b:2", "--machines=c:3,d:4"),
    ),
    "several words": (
        addresses("p.add_argument('--servers', nargs='+')\np.add_argument('--machines', nargs='*')",
                  "tf.train.ClusterSpec({'ps': args.servers, 'worker': args.machines})"),
        ("--servers", "a:1", "b:2", "--machines", "c:3", "d:4"),
    ),
    "lists of absl": (
        "F = tf.flags\nF.DEFINE_list('servers', [], '')\nF.DEFINE_multi_string('machines', [], "
        "'')\n"
        "F.DEFINE_string('job_name', '', '')\n"
        "s = tf.train.Server({'ps': F.FLAGS.servers, 'worker': F.FLAGS.machines}, "
        "job_name=F.FLAGS.job_name)",
        ("--servers=a:1,b:2", "--machines=c:3", "--machines=d:4", "--job_name=worker"),
    ),
    "options of click that are repeated": (
        "import click, tensorflow as tf\n"
        "@click.command()\n@click.option('--servers', multiple=True)\n"
        "@click.option('--machines', multiple=True)\n@click.option('--job_name')\n"
        "def main(servers, machines, job_name):\n"
        "  tf.train.Server({'ps': list(servers), 'worker': list(machines)}, job_name=job_name)\n"
        "main()",
        ("--servers=a:1", "--servers=b:2", "--machines=c:3", "--machines=d:4", "--job_name=worker"),
    ),
    "key by key, in a function": (
        addresses(TWO, "tf.train.ClusterSpec(spec(args))") .replace("import sys", "") +
        "\ndef spec(a):\n  c = {}\n  c['ps'] = a.servers.split(',')\n  c['worker'] = "
        "a.machines.split(',')\n  return c",
        ("--servers=a:1,b:2", "--machines=c:3,d:4"),
    ),
    "the whole cluster as JSON": (
        addresses("p.add_argument('--spec')", "tf.train.ClusterSpec(json.loads(args.spec))"),
        ("--spec=" + GIVEN["cluster"],),
    ),
    "the cluster's parts by key": (
        addresses("p.add_argument('--spec')\nspec = json.loads(p.parse_args().spec)",
                  "tf.train.ClusterSpec({'ps': spec['ps'], 'worker': spec['worker']})"),
        ("--spec=" + GIVEN["cluster"],),
    ),
    "by name alone": (
        addresses("p.add_argument('--ps')\np.add_argument('--workers')", "make(args)"),
        ("--ps=a:1,b:2", "--workers=c:3,d:4"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.values(), ids=ADDRESSES)
def test_addresses_of_other_tasks(job: Job, text: str, expected: tuple[str, ...]) -> None:
    assert tuple(
        word
        for word in chosen_arguments(job, text)
        if "task_index" not in word and word != "--job_name=worker"
    ) == tuple(word for word in expected if word != "--job_name=worker")


NOTHING = {
    "no cluster is made": ARGS +
        "p.add_argument('--role', choices=['ps', "
        "'worker'])\np.add_argument('--rank', type=int)",
    "a role that never speaks of ps": ARGS +
        "p.add_argument('--role')\np.add_argument('--index', "
        "type=int)\n" + CLUSTER,
    "a number of workers": (
        ARGS +
            "p.add_argument('--workers', type=int)\nc = "
            "{'worker': p.parse_args().workers}\n" + CLUSTER
    ),
    "an index that is computed": (
        ARGS + "p.add_argument('--number', type=int)\na = p.parse_args()\n" + CLUSTER
        + "s = tf.train.Server(cluster, job_name='worker', task_index=a.number - 1)"
    ),
    "a word of unknown meaning first": (
        CLUSTER +
            "data = sys.argv[1]\ns = tf.train.Server(cluster, job_name=sys.argv[2], "
            "task_index=int(sys.argv[3]))"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_ambiguous_flag_gets_no_value(job: Job, text: str) -> None:
    assert chosen_arguments(job, text) == ()


def test_use_of_flag_takes_precedence_over_name(job: Job) -> None:
    """Test that --role is recognised as the flag of the role, because the program passes its value
    to tf.train.Server as the name of the job. The program uses --job_name for something else.
    """
    text = (
        ARGS
        + "p.add_argument('--job_name', type=int)\np.add_argument('--role')\na = p.parse_args()\n"
        + CLUSTER
    )
    assert chosen_arguments(job, text + "s = tf.train.Server(cluster, job_name=a.role)") == (
        "--role=worker",
    )


def test_flag_for_number_of_workers(job: Job) -> None:
    """Test that --replicas is recognised as the flag for the number of workers, by its use.
    --num_workers gets no value, because this program uses it for a data loader.
    """
    text = gathering_program(
        "p.add_argument('--replicas', type=int)\np.add_argument('--num_workers', type=int)", "True"
    )
    text = text.replace("Optimizer(opt)", "Optimizer(opt, 1, total_num_replicas=FLAGS.replicas)")
    assert [
        word for word in chosen_arguments(job, text) if "replicas" in word or "num" in word
    ] == ["--replicas=2"]
    program = source.read_program(job.command, {"train.py": HEAD + text})
    with_chief = appended_flags.choose_flags(job, program, ("ps", "chief", "worker")).flags
    assert "num_workers" not in [flag.name for flag in with_chief]


def test_flags_of_other_library_get_no_value(job: Job) -> None:
    """Test that a program that uses both absl and argparse gets no value for its argparse flags.

    absl reads the whole command line and would fail at --machines, a flag that it does not know.
    """
    text = (
        "F = tf.app.flags\nF.DEFINE_string('job_name', '', '')\nFLAGS = F.FLAGS\n"
        + ARGS
        + "p.add_argument('--machines')\n"
        "a, _ = p.parse_known_args()\ncluster = tf.train.ClusterSpec({'worker': "
        "a.machines.split(',')})\n"
        "s = tf.train.Server(cluster, job_name=FLAGS.job_name)"
    )
    assert chosen_arguments(job, text) == ("--job_name=worker",)


def test_use_of_flag_may_be_in_another_file(job: Job) -> None:
    text = "import nodes\n" + ARGS + "p.add_argument('--who')\nnodes.serve(p.parse_args().who)"
    assert chosen_arguments(
        job, text, nodes=CLUSTER + "def serve(name):\n  tf.train.Server(cluster, job_name=name)"
    ) == ("--who=worker",)


def test_plan_gives_reason(job: Job) -> None:
    text = IDENTITY["a role and an index of one's own"][0]
    assert (
        "--who as {job_name} (train.py:8) --number as {task_index} (train.py:8)"
        in choose_flags(job, text).note
    )
    assert "sys.argv[1] as {job_name}" in choose_flags(job, IDENTITY["words by hand"][0]).note
    assert (
        "--job as {job_name}:{task_index}" in choose_flags(job, IDENTITY["--job=worker:1"][0]).note
    )


def test_flags_in_command_are_kept(job: Job) -> None:
    text = IDENTITY["words by hand"][0]
    assert choose_flags(job, text, given_words=("worker", "0")).flags == ()
    text = IDENTITY["positional arguments"][0] + "\np.add_argument('--steps')"
    assert choose_flags(job, text, given_words=("ps", "0")).flags == ()
    assert len(choose_flags(job, text, given_words=("--steps", "7")).flags) == 2


def test_unknown_positional_argument_is_named(job: Job) -> None:
    note = choose_flags(job, NOTHING["a word of unknown meaning first"]).note
    assert "tfdeploy knows no value for sys.argv[1]" in note and "{job_name} {task_index}" in note


MIRRORED = (
    ARGS + "p.add_argument('--hosts')\np.add_argument('--number', type=int)\na = "
    "p.parse_args()\nimport os\n"
    "os.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': a.hosts.split(',')}, "
    "'task': {'type': 'worker', 'index': a.number}})"
)


@pytest.mark.parametrize(
    ("roles", "given"),
    [(("worker",), 2), (("chief", "worker"), 0), (("worker", "evaluator"), 0)],
    ids=["workers", "chief", "evaluator"],
)
def test_flags_of_program_that_writes_tf_config(
    job: Job, roles: tuple[str, ...], given: int
) -> None:
    """Test which flags tfdeploy appends for a program that writes TF_CONFIG itself.

    If the cluster has a chief or an evaluator, tfdeploy appends no flags. If it did, the program
    would make its own TF_CONFIG from the flags. That TF_CONFIG would lack the chief or the
    evaluator, and would replace the planned one.
    """
    job = replace(job, mode="mirrored")
    program = source.read_program(job.command, {"train.py": HEAD + MIRRORED})
    assert len(appended_flags.choose_flags(job, program, roles).flags) == given


def test_client_gets_addresses_of_servers(job: Job) -> None:
    """Test that the client of an in-graph cluster gets the addresses of the servers, but no role
    and no index.

    The client is not a task of the cluster, so the servers would not know its role.
    """
    text = (
        ARGS + "p.add_argument('--machines')\np.add_argument('--number', type=int, default=0)\na = "
        "p.parse_args()\n"
        "c = tf.train.ClusterSpec({'worker': a.machines.split(',')})\n"
        "if a.number:\n  tf.train.Server(c, job_name='worker', task_index=a.number)"
    )
    job = replace(job, mode="ingraph")
    program = source.read_program(job.command, {"train.py": HEAD + text})
    flags = appended_flags.choose_flags(job, program, ("chief", "worker")).flags
    assert [word for flag in flags for word in flag.arguments(GIVEN)] == ["--machines=c:3,d:4"]
