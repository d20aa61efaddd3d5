"""Test which sessions of TensorFlow get device filters. This depends on the environment and on the
devices in the graph.
"""

from __future__ import annotations

import types

import pytest

from tfdeploy.runtime import device_filters, synchronous


@pytest.fixture
def task(monkeypatch):
    def be(role="worker", index="1", mode="async"):
        for name, value in (("ROLE", role), ("INDEX", index), ("MODE", mode)):
            monkeypatch.setenv("TFDEPLOY_TASK_" + name, value)

    monkeypatch.setattr(synchronous, "_has_optimizer", [])
    be()
    return be


@pytest.mark.parametrize(
    ("role", "index", "mode", "filters"),
    [
        ("worker", "1", "async", ["/job:ps", "/job:worker/task:1"]),
        ("chief", "0", "async", ["/job:ps", "/job:chief/task:0"]),
        ("worker", "1", "", ["/job:ps", "/job:worker/task:1"]),
        ("worker", "1", "sync", None),
        ("worker", "1", "ingraph", None),
        ("ps", "0", "async", ["/job:ps"]),
        ("ps", "0", "sync", ["/job:ps"]),
        ("ps", "0", "coordinator", None),
        ("evaluator", "0", "async", None),
        ("worker", "", "async", None),
    ],
)
def test_filters_of_task(task, role, index, mode, filters):
    task(role, index, mode)
    assert device_filters.own_device_filters() == filters


def test_program_with_synchronous_optimizer_gets_no_filters(task, monkeypatch):
    monkeypatch.setattr(synchronous, "_has_optimizer", [True])
    assert device_filters.own_device_filters() is None


@pytest.mark.parametrize(
    ("device", "within"),
    [
        ("", True),
        ("/device:GPU:0", True),
        ("/job:ps/task:7", True),
        ("/job:ps/replica:0/task:0/device:CPU:0", True),
        ("/job:worker/task:1/device:GPU:0", True),
        ("/job:worker", True),
        ("/job:worker/task:0", False),
        ("/job:worker/replica:0/task:11/device:CPU:0", False),
        ("/job:master/task:0", False),
    ],
)
def test_devices_within_the_filters(device, within):
    assert (
        device_filters.match_all_devices(["/job:ps", "/job:worker/task:1"], ["", device]) is within
    )


class Config:
    """Stands for a ConfigProto, with the methods that the patch uses."""

    def __init__(self, filters=(), name="default"):
        self.device_filters, self.name = list(filters), name

    def CopyFrom(self, other):
        self.device_filters, self.name = list(other.device_filters), other.name


@pytest.fixture
def session():
    graph = types.SimpleNamespace(devices=[])
    graph.get_operations = lambda: [
        types.SimpleNamespace(device=device) for device in graph.devices
    ]
    return types.SimpleNamespace(
        config_pb2=types.SimpleNamespace(ConfigProto=Config),
        context=types.SimpleNamespace(context=lambda: types.SimpleNamespace(config=Config())),
        ops=types.SimpleNamespace(get_default_graph=lambda: graph),
        graph=graph,
    )


@pytest.mark.parametrize("target", ["grpc://localhost:2222", b"grpc://localhost:2222"])
def test_configuration_of_program_is_copied_and_not_changed(task, session, target):
    given = Config(name="mine")
    used = device_filters.add_filters(session, target, None, given)
    assert (used.name, used.device_filters) == ("mine", ["/job:ps", "/job:worker/task:1"])
    assert given.device_filters == []
    assert (
        device_filters.add_filters(session, target, None, None).device_filters
        == used.device_filters
    )


def test_unchanged_sessions(task, session):
    config_with_filters = Config(["/job:ps"])
    assert (
        device_filters.add_filters(session, "grpc://a:1", None, config_with_filters)
        is config_with_filters
    )
    assert device_filters.add_filters(session, "", None, None) is None
    assert device_filters.add_filters(session, None, None, None) is None
    assert device_filters.add_filters(session, "grpc://a:1", None, "not a config") == "not a config"
    session.graph.devices = ["/job:ps/task:0", "/job:worker/task:0"]
    assert device_filters.add_filters(session, "grpc://a:1", None, None) is None


class Base:
    """Stands for TensorFlow's session. `_session` has the device filters with which it was
    created.
    """

    def __init__(self, target="", graph=None, config=None):
        self.graph, self._session, self.extended = graph, config.device_filters, 0

    def _extend_graph(self):
        self.extended += 1


@pytest.mark.parametrize(
    ("role", "later", "filters"),
    [
        ("ps", "/job:ps/task:1", ["/job:ps"]),
        ("ps", "/job:worker/task:0", []),
        ("worker", "/job:worker/task:1", ["/job:ps", "/job:worker/task:1"]),
        ("worker", "/job:worker/task:0", []),
    ],
)
def test_operations_added_before_first_run_are_considered(task, session, role, later, filters):
    task(role)
    deleted = []
    session.BaseSession = type("BaseSession", (Base,), {"__init__": Base.__init__})
    session.tf_session = types.SimpleNamespace(TF_DeleteSession=deleted.append)
    device_filters.patch_module(session)
    new_session = session.BaseSession("grpc://a:1", session.graph, Config())
    session.graph.devices = [later]
    new_session._extend_graph()
    # If a device is added after the session's first run, tfdeploy's patch has no effect, and
    # TensorFlow behaves as usual.
    session.graph.devices = ["/job:worker/task:7"]
    new_session._extend_graph()
    assert (new_session._session, new_session.extended) == (filters, 2)
    assert deleted == ([] if filters else [device_filters.own_device_filters()])


def test_error_in_patch_leaves_session_unchanged(task, session, capsys):
    class BaseSession:
        def __init__(self, target="", graph=None, config=None):
            self.made = (target, graph, config)

    session.BaseSession = BaseSession
    session.ops = None
    device_filters.patch_module(session)
    assert BaseSession("grpc://a:1").made == ("grpc://a:1", None, None)
    assert capsys.readouterr().err.startswith(
        "tfdeploy: device_filters is not in effect here: AttributeError"
    )
