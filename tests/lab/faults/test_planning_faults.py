"""Test hosts whose software or host names make a launch impossible. The launch fails before
anything is sent, and the error names the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import host_changed_by_scripts, on_host, set_inventory
from support.lab.jobs import write_job
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SITE = "~/py-{name}/site"
PYTHON = """#!/bin/sh
PYTHONPATH=$HOME/py-{name}/site exec /usr/bin/env python3 -S "$@"
"""
KERAS = """import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential()
model.fit([1])
"""


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


@contextmanager
def interpreters(operator: Tfdeploy, **packages: tuple[str, ...]) -> Iterator[None]:
    """Give each of these hosts an interpreter that has only the given packages. Each package is
    recorded as pip records it.
    """
    lab = operator.lab
    for host, names in packages.items():
        folders = " ".join(
            f"{SITE.format(name=host)}/{name}.dist-info" for name in names
        ) or SITE.format(name=host)
        on_host(
            lab,
            host,
            f"mkdir -p {folders}; cat > ~/py-{host}/python <<'EOF'\n{PYTHON.format(name=host)}EOF",
        )
        on_host(lab, host, f"chmod +x ~/py-{host}/python")
    set_inventory(operator, hosts={host: {"python": f"~/py-{host}/python"} for host in packages})
    try:
        yield
    finally:
        for host in packages:
            on_host(lab, host, f"rm -r ~/py-{host}")


def refused(operator: Tfdeploy, job: str, *args: str) -> str:
    """Check that the launch fails and sends nothing. Return the error."""
    stderr = operator.run("launch", *args, exit_code=3).stderr
    assert "next: " in stderr and "Traceback" not in stderr
    for host in operator.lab.hosts:
        assert (
            on_host(operator.lab, host, f"ls ~/tfdeploy/{job}/releases 2>/dev/null || true") == ""
        )
    return stderr.partition("error:")[2]


@pytest.mark.fault("31 TensorFlow missing on one host of four")
def test_the_host_without_tensorflow_is_named(operator: Tfdeploy) -> None:
    write_job(operator, "no-tf", "quick.py")
    (operator.cwd / "quick.py").write_text("import tensorflow as tf\n")
    with_tf = ("tensorflow-2.21.0",)
    with interpreters(operator, n1=with_tf, n2=with_tf, n3=(), n4=with_tf):
        error = refused(operator, "no-tf")
        assert (
            "on n3 has none" in error
            and "--limit n3 -- " in error
            and "-m pip install tensorflow" in error
        ), error


@pytest.mark.fault("31 another TensorFlow on one host of four")
def test_the_host_with_another_tensorflow_is_named(operator: Tfdeploy) -> None:
    write_job(operator, "odd-tf", "quick.py")
    (operator.cwd / "quick.py").write_text("import tensorflow as tf\n")
    with_tf = ("tensorflow-2.21.0",)
    with interpreters(operator, n1=with_tf, n2=with_tf, n3=with_tf, n4=("tensorflow-2.16.1",)):
        completed = operator.run("launch", "--dry-run", exit_code=0)
        assert (
            "n4 has TensorFlow 2.16.1, most hosts have 2.21.0"
            in completed.stdout + completed.stderr
        )


@pytest.mark.fault("31 tf_keras missing in mirrored mode, with the pip line")
def test_the_host_without_tf_keras_is_named_with_the_pip_line(operator: Tfdeploy) -> None:
    write_job(operator, "no-keras", "quick.py", mode="mirrored")
    (operator.cwd / "quick.py").write_text(KERAS)
    whole = ("tensorflow-2.21.0", "tf_keras-2.21.0")
    with interpreters(operator, n2=whole, n3=whole[:1], n4=whole):
        error = refused(operator, "no-keras")
        assert (
            "tf_keras is missing on n3" in error
            and "--limit n3 -- " in error
            and "pip install 'tf_keras~=2.21.0'" in error
        ), error


@pytest.mark.fault("32 a cluster name that is loopback on its own host")
def test_a_name_that_is_loopback_on_its_own_host_is_named(operator: Tfdeploy) -> None:
    write_job(operator, "own-name", "quick.py")
    set_inventory(operator, hosts={"n2": {"advertise": "trainer"}})
    do = "cp /etc/hosts /root/hosts.before; echo '127.0.1.1 trainer' >> /etc/hosts"
    with host_changed_by_scripts(operator.lab, "n2", do, "cat /root/hosts.before > /etc/hosts"):
        error = refused(operator, "own-name")
    assert "trainer" in error and "/etc/hosts" in error and "`advertise: ADDRESS`" in error, error


@pytest.mark.fault("58 a public address in the cluster")
def test_a_public_address_needs_consent(operator: Tfdeploy) -> None:
    write_job(operator, "public", "quick.py")
    set_inventory(operator, hosts={"n3": {"advertise": "8.8.8.8"}})
    error = refused(operator, "public")
    assert (
        "the address of n3 in the cluster would be the public address 8.8.8.8" in error
        and "--allow-public" in error
    ), error
    completed = operator.run("launch", "--dry-run", "--allow-public", exit_code=0)
    assert (
        "the address of n3 in the cluster is the public address 8.8.8.8"
        in completed.stdout + completed.stderr
    )
    assert "on n3 8.8.8.8): with `protect: " in completed.stdout + completed.stderr


SMI = """#!/bin/sh
echo '0, GPU-004f693d-767b-b215-b4a9-a18af0ffd643, NVIDIA H200, 143771 MiB, 4 MiB'
"""


@pytest.mark.fault("5 more GPUs asked for than there are")
def test_more_gpus_than_there_are_is_refused_with_the_count(operator: Tfdeploy) -> None:
    write_job(operator, "gpus", "quick.py", roles={"worker": {"gpus": 2}})
    with ExitStack() as stack:
        for host in operator.lab.hosts:
            put = (
                f"cat > /usr/local/bin/nvidia-smi <<'EOF'\n{SMI}EOF\nchmod 755 "
                "/usr/local/bin/nvidia-smi"
            )
            stack.enter_context(
                host_changed_by_scripts(operator.lab, host, put, "rm /usr/local/bin/nvidia-smi")
            )
        error = refused(operator, "gpus")
    assert "GPU" in error and "n2" in error and "2" in error, error
