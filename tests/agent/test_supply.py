"""The chief's keep on its way to another host while its run ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tfdeploy.agent import layout, sockets, supply, wire
from tfdeploy.agent.knowledge import Knowledge
from tfdeploy.agent.mesh import Mesh


def test_what_comes_after_the_end_of_the_run_is_not_put_in_place(hosts: Any) -> None:
    """A minder stays as a messenger; by then the next run of the job may write there."""
    cluster = hosts("n1", "n2")
    cluster.prepare("r1", {"worker:0": ("n1", ["true"]), "worker:1": ("n2", ["true"])}, keep=["ckpt"], supply_from="n1")
    keep = {name: Path(layout.keep_dir(host.context.workdir, cluster.job, "ckpt")) for name, host in cluster.hosts.items()}
    (keep["n1"] / "checkpoint").write_text("of the run that is over")
    (keep["n2"] / "checkpoint").write_text("of the next run")
    cluster.each("run.abort", "r1", reason="its minders' ports are for us")
    cluster.wait_ended("r1")
    asked, answer = threading.Event(), threading.Event()
    meshes, offers = {}, supply.Offers(cluster.hosts["n1"].paths("r1"), cluster.hosts["n1"].paths("r1").part())

    def answer_late(*question: Any) -> None:
        asked.set()
        assert answer.wait(20)
        offers.answer(*question)

    for name, host in cluster.hosts.items():
        part = wire.from_wire(wire.HostPart, wire.to_wire(host.paths("r1").part()))
        meshes[name] = Mesh(
            part, cluster.certs[name], sockets.claim(host.mesh_port, 20.0), Knowledge(), lambda: None, answer_late
        )
    paths = cluster.hosts["n2"].paths("r1")
    supplier = supply.Supplier(paths, paths.part(), meshes["n2"])
    try:
        assert not supplier.has_come(2) and asked.wait(20)
        supplier.give_up()
        answer.set()
        cluster.wait_until(lambda: not supplier._fetching)
        assert (keep["n2"] / "checkpoint").read_text() == "of the next run"
    finally:
        answer.set()
        for one in meshes.values():
            one.close()
