"""Test the simulator of broadcasts, in which hosts pass data on to each other. The two models of
the simulator must agree, and no model may send more over a link than the link can carry.
"""

from __future__ import annotations

import json
from typing import Any

import broadcast_simulator
import pytest
from simulated_flow import Flow
from simulated_hosts import Control, MakesTransfer, Outcome, Scenario
from simulated_pieces import Pieces
from simulated_plot import plot

MIB = 1 << 20
BOTH = pytest.mark.parametrize("moves", [Pieces, Flow])


def run(moves: MakesTransfer, **fields: Any) -> tuple[Scenario, Outcome]:
    scenario = Scenario(**{"hosts": 8, "total_bytes": 64 * MIB, "rate": 12.5e6, **fields})
    return scenario, Control(scenario, moves).run(400.0)


def times(moves: MakesTransfer, **fields: Any) -> float:
    """Simulate a broadcast. Return the time at which the last host has all data, as a multiple of
    `Scenario.wire_s` (the time that the data needs on one link). Slow hosts are left out.
    """
    scenario, outcome = run(moves, **fields)
    assert outcome.lacking == 0
    return (
        max(time for host, time in outcome.completed.items() if host not in scenario.slow_in)
        / scenario.wire_s
    )


@BOTH
def test_one_host_receives_at_speed_of_link(moves: MakesTransfer) -> None:
    assert times(moves, hosts=1) == pytest.approx(1.0, abs=0.03)


@BOTH
def test_chain_adds_delay_for_each_hop(moves: MakesTransfer) -> None:
    scenario, outcome = run(moves)
    hop_s = 256 * 1024 / scenario.rate + scenario.process_s + scenario.rtt_s / 2
    assert max(outcome.completed.values()) - outcome.completed[0] == pytest.approx(
        7 * hop_s, rel=0.15
    )


@BOTH
def test_waiting_over_slow_links_moves_no_host(moves: MakesTransfer) -> None:
    scenario, outcome = run(moves, hosts=64, rate=0.5e6)
    assert outcome.lacking == outcome.moves == 0
    assert max(outcome.completed.values()) / scenario.wire_s < 1.1


@BOTH
def test_one_copy_leaves_this_machine_and_one_goes_to_other_site(
    moves: MakesTransfer,
) -> None:
    scenario, outcome = run(moves, sites=2)
    assert outcome.from_here_bytes == pytest.approx(scenario.total_bytes, rel=0.01)
    assert outcome.crossed_bytes == pytest.approx(scenario.total_bytes, rel=0.01)


@BOTH
def test_no_host_is_faster_than_slow_line_or_slow_host(moves: MakesTransfer) -> None:
    assert times(moves, sites=2, line=12.5e6 / 4) == pytest.approx(4.0, abs=0.2)
    scenario, outcome = run(moves, slow_in={3: 0.25})
    assert outcome.completed[3] / scenario.wire_s == pytest.approx(4.0, abs=0.2)


@BOTH
def test_dead_host_gets_nothing_and_delays_others_until_noticed(
    moves: MakesTransfer,
) -> None:
    scenario, outcome = run(moves, deaths={3: 2.5})
    assert sorted(outcome.completed) == [0, 1, 2, 4, 5, 6, 7]
    assert outcome.lacking == 0 and outcome.moves == 1
    assert max(outcome.completed.values()) < scenario.wire_s + 2.0


FATES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a death": {"deaths": {7: 3.3}},
    "deaths": {"deaths": {7: 3.0, 8: 4.0, 19: 5.0}},
    "slow": {"slow_in": {5: 0.25, 20: 0.25}},
    "stopped": {"stops": {9: 4.0}},
    "two sites": {"sites": 2, "line": 5e6},
}


@pytest.mark.parametrize("fate", ["nothing", "a death"])
def test_both_models_take_same_time(fate: str) -> None:
    fields = {"hosts": 24, "total_bytes": 100 * MIB, **FATES[fate]}
    assert times(Flow, **fields) == pytest.approx(times(Pieces, **fields), rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize("fate", FATES)
def test_both_models_agree_for_100_hosts(fate: str) -> None:
    """Test that both models agree for 100 hosts that get 500 MB in 1,900 pieces at 100 Mbit/s."""
    fields = {"hosts": 100, "total_bytes": 5 * 10**8, **FATES[fate]}
    assert times(Flow, **fields) == pytest.approx(times(Pieces, **fields), rel=0.05)


def test_command_prints_each_figure_once_and_fails_if_host_is_incomplete(
    capsys, monkeypatch
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["x", "--hosts", "8", "20", "--bytes", "64M", "--rate", "100", "--json"]
    )
    assert broadcast_simulator.main() == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["hosts"], row["stripes"]) for row in rows] == [(8, 1), (20, 2)]
    assert all(1.0 < row["times"] < 1.1 and row["wire_s"] == 5.369 for row in rows)
    monkeypatch.setattr(broadcast_simulator, "LONGEST", -11.0)
    assert broadcast_simulator.main() == 1


def test_plot_names_cases_and_keeps_to_its_height() -> None:
    row = {"case": "1 % <die>", "crossed": 0, "bytes": 10**10, "mbit_s": 1000.0}
    drawn = plot(
        [{**row, "hosts": hosts, "quick_times": quick} for hosts, quick in ((10, 1.0), (1000, 9.0))]
    )
    assert (
        drawn.startswith("<svg")
        and "1 % &lt;die&gt;" in drawn
        and "prefers-color-scheme: dark" in drawn
    )
