"""Measure `tfdeploy sync` of a data set to all hosts over links of limited rate.

    small     64 MB in 16 files to 8 hosts at 100 Mbit/s, compared with `xargs -P8 rsync`
    16, 32    256 MB to 16 or 32 hosts at 50 Mbit/s, compared with a chain of socat processes that
              passes on the same bytes in the shortest time possible on this machine
    killed    256 MB to 16 hosts; half way, one host that passes data on (a relay) loses its agent
              or its power
    sites     64 MB to two sites of 4 hosts each, with 20 Mbit/s between the sites
    calm      64 MB to --hosts hosts at --mbit Mbit/s, for a comparison with a simulator; this case
              runs only if it is named, and the rate should be low enough to keep the machine calm

The measured seconds are compared with the wire's time: the time that the data set takes at the
link's rate. Bytes are read from the kernel's counters. Each round sends new content, and at the end
the checksum of that content is compared on every host. Compare the figures with a simulator only if
less than 60 % of the machine's CPU time was used. `--tree ../before` measures another checkout.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import chain
import rivals
from figures import Figures, options, say
from meters import Meter, metered
from place import BenchLab, open_bench_lab
from turns import Spent

from tfdeploy.lab import processes

JOB = "name: bench\nmode: async\ncommand: [python, train.py]\ndata: {set: ../set}\n"
MB = 1_000_000
FILES = 16
PARTS = "small,16,32,killed,sites"
SUM = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
# A result may be compared with the simulator's result only if the machine's cores were busy for
# less than this fraction of the time.
COMPARABLE = 0.6
POLL_S = 0.05
HALF_A_PIECE = 128 << 10
HALF_WAY_S = 300.0


@dataclass(frozen=True)
class Case:
    """One case to measure: a data set of `megabytes` MB is sent to all hosts of a lab. `rate_mbit`
    is the rate of the lab's slowest link."""

    place: BenchLab
    megabytes: int
    rate_mbit: int
    figures: Figures

    @property
    def wire_s(self) -> float:
        return self.megabytes * MB * 8 / (self.rate_mbit * 1e6)

    @property
    def what(self) -> str:
        return f"{self.megabytes} MB to {len(self.place.lab.hosts)} hosts, {self.rate_mbit} Mbit/s"

    @property
    def source(self) -> Path:
        return self.place.home / "set"


@dataclass(frozen=True)
class Round:
    seconds: float
    meter: Meter
    spent: Spent
    complete_s: float  # seconds until the last living host had its last file in place
    began: float = 0.0  # when the sync began, in UTC seconds


def main() -> None:
    args = options(__doc__, rounds=1, hosts=16, mbit=10, large=256, small=64, parts=PARTS, tree="")
    figures = Figures("broadcast", args.json)
    new_case = partial(a_case, figures, args.tree)
    parts = args.parts.split(",")
    if "small" in parts:
        with new_case(8, args.small, 100) as case:
            small(case, args.rounds)
    for hosts, goal in ((16, 1.2), (32, 1.3)):
        killed_too = "killed" in parts and hosts == 16
        if str(hosts) in parts or killed_too:
            with new_case(hosts, args.large, 50) as case:
                floors = large(case, args.rounds, goal)
                if killed_too:
                    killed(case, args.rounds, max(case.wire_s, median(floors)))
    if "sites" in parts:
        with new_case(8, args.small, 20, rate="100mbit", sites=2, between="20mbit") as case:
            two_sites(case, args.rounds)
    if "calm" in parts:
        with new_case(args.hosts, args.small, args.mbit) as case:
            calm(case, args.rounds)


@contextmanager
def a_case(
    figures: Figures, tree: str, hosts: int, megabytes: int, rate_mbit: int, **wishes: object
) -> Iterator[Case]:
    """Yield a case whose hosts have the agent, the code, and a tiny data set."""
    with open_bench_lab(hosts, **{"rate": f"{rate_mbit}mbit", **wishes}) as bench:
        case = Case(
            bench.with_checkout(Path(tree).resolve()) if tree else bench,
            megabytes,
            rate_mbit,
            figures,
        )
        (bench.work / "tfdeploy.yaml").write_text(JOB)
        (bench.work / "train.py").write_text("")
        case.source.mkdir()
        renew(case, of_bytes=FILES)
        bench.tfdeploy("sync", "--json")
        yield case


def renew(case: Case, of_bytes: int | None = None) -> None:
    """Write new content to the files of the data set. `of_bytes` is the total size of these files.
    By default, it is the size that `case` has for its data set.
    """
    size = (of_bytes or case.megabytes * MB) // FILES
    for number in range(FILES):
        (case.source / f"shard-{number:05}").write_bytes(os.urandom(size))


def ours(case: Case, *, may_fail: bool = False, lost: str | None = None) -> Round:
    """Sync with tfdeploy, check the copies on all hosts except `lost`, and return the cost."""
    renew(case)
    began = time.time()
    with metered(case.place.lab) as meter:
        spent = case.place.tfdeploy("sync", "--json", may_fail=may_fail)
    check(case, "tfdeploy/bench/data/set", lost=lost)
    return Round(
        seconds=spent.seconds,
        meter=meter,
        spent=spent,
        complete_s=completed(case, lost) - began,
        began=began,
    )


def check(case: Case, folder: str, *, lost: str | None = None) -> None:
    """Check by checksum that each host except `lost` has the source's content."""
    wanted = case.place.run(["sh", "-c", f"cd {case.source} && {SUM}"]).output.decode().strip()
    bound = ["--exclude", lost] if lost else []
    answer = json.loads(
        case.place.tfdeploy("exec", "--json", *bound, "--", f"cd {folder} && {SUM}").output
    )["hosts"]
    wrong = [row["host"] for row in answer if row["stdout"].strip() != wanted]
    if wrong or len(answer) != len(case.place.lab.hosts) - bool(lost):
        raise SystemExit(
            f"{case.what}: not what was sent is on {', '.join(wrong) or 'hosts that said nothing'}"
        )


def completed(case: Case, lost: str | None) -> float:
    """Return the time, in UTC seconds, at which the last file was put in place. A file's ctime is
    the time at which the file was renamed into place."""
    sets = (
        case.place.lab.root / "hosts" / host / "home/tfdeploy/bench/data/set"
        for host in case.place.lab.hosts
        if host != lost
    )
    return max(path.stat().st_ctime for folder in sets for path in folder.iterdir())


def small(case: Case, rounds: int) -> None:
    addresses = "\n".join(case.place.addresses).encode()

    def theirs() -> Round:
        renew(case)
        case.place.run_everywhere("rm -rf rsynced")
        with metered(case.place.lab) as meter:
            spent = case.place.run(
                rivals.rsync(case.place, case.source, "rsynced", parallel=8), stdin=addresses
            )
        check(case, "rsynced")
        return Round(seconds=spent.seconds, meter=meter, spent=spent, complete_s=spent.seconds)

    timings = turns({"tfdeploy": lambda: ours(case), "xargs -P8 rsync": theirs}, rounds)
    theirs_s = [each.seconds for each in timings["xargs -P8 rsync"]]
    against_wire(case, f"xargs -P8 rsync: {case.what}", theirs_s, None)
    against_wire(case, case.what, [each.seconds for each in timings["tfdeploy"]], 1.25)
    bytes_and_load(case, timings["tfdeploy"])


def large(case: Case, rounds: int, goal: float) -> list[float]:
    """Measure how long tfdeploy takes to send 256 MB to many hosts. In the same rounds, also send
    the data through a chain of plain TCP relays. Return the seconds of the chain in each round."""

    def chained() -> Round:
        renew(case)
        with metered(case.place.lab) as meter:
            spent = chain.send(case.place, sorted(case.source.iterdir()))
        return Round(seconds=spent.seconds, meter=meter, spent=spent, complete_s=spent.seconds)

    timings = turns({"tfdeploy": lambda: ours(case), "chain": chained}, rounds)
    floors = [each.seconds for each in timings["chain"]]
    against_wire(case, f"chain of {chain.name()}: {case.what}", floors, None)
    ratios = [
        each.seconds / max(case.wire_s, floor)
        for each, floor in zip(timings["tfdeploy"], floors, strict=True)
    ]
    seconds = median(each.seconds for each in timings["tfdeploy"])
    case.figures.add(
        case.what,
        seconds,
        "s",
        ratio=median(ratios),
        against="the larger of wire and chain",
        goal=goal,
    )
    bytes_and_load(case, timings["tfdeploy"])
    return floors


def killed(case: Case, rounds: int, floor_s: float) -> None:
    """Measure a sync in which the middle host, or its agent, is killed when the host has half of
    the bytes. After each round, another sync sends the rest to that host."""
    victim = case.place.lab.hosts[len(case.place.lab.hosts) // 2 - 1]

    def kill_agent() -> None:
        for pid in agents(case.place, victim):
            processes.send_kill(pid)

    def kill_host() -> None:
        case.place.lab.kill(victim)

    for how, kill in (("its agent", kill_agent), ("its host", kill_host)):
        results = []
        for _ in range(rounds):
            with half_way(case, victim, kill):
                results.append(ours(case, may_fail=True, lost=victim))
            case.place.lab.boot(victim)
            case.place.tfdeploy("sync", "--json")
            check(case, "tfdeploy/bench/data/set")
        what = f"{case.what}, relay killed ({how})"
        others = median(each.complete_s for each in results)
        case.figures.add(
            f"{what}: others whole", others, "s", ratio=others / floor_s, against="floor", goal=1.6
        )
        whole = median(each.seconds for each in results)
        case.figures.add(f"{what}: command", whole, "s", ratio=whole / floor_s, against="floor")


def agents(bench: BenchLab, host: str) -> list[int]:
    """Return the pids of the host's `agent serve` processes, one for each SSH session.

    They are recognised as the Python processes that descend from the host's sshd.
    """
    (first,) = (row["pid"] for row in bench.lab.status() if row["host"] == host)
    below = processes.with_descendants([first or 0]) - {first}
    pids = [pid for pid in below if Path(f"/proc/{pid}/comm").read_text().startswith("python")]
    if not pids:
        raise SystemExit(f"no agent on {host}")
    return pids


@contextmanager
def half_way(case: Case, host: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` when the host has received half of the bytes.

    The check for this starts no process, because that would slow down the measurement.
    """
    (first,) = (row["pid"] for row in case.place.lab.status() if row["host"] == host)
    before = received(first or 0)
    deadline = time.monotonic() + HALF_WAY_S
    acted = False

    def wait() -> None:
        nonlocal acted
        while received(first or 0) - before < case.megabytes * MB / 2:
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_S)
        act()
        acted = True

    waiting = threading.Thread(target=wait)
    waiting.start()
    yield
    waiting.join()
    if not acted:
        raise SystemExit(f"{case.what}: {host} never had half of the bytes, or could not be killed")


def received(pid: int) -> int:
    """Return the bytes received on a host's interface. `pid`: the first process of the host."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()
        if line.strip().startswith("eth0:")
    )
    return int(line.partition(":")[2].split()[0])


def two_sites(case: Case, rounds: int) -> None:
    """Measure a sync to two sites. The slow link leads from the router to the second site."""
    timings = turns({"tfdeploy": lambda: ours(case)}, rounds)["tfdeploy"]
    against_wire(case, f"{case.what} between two sites", [each.seconds for each in timings], None)
    thin = median(each.meter.from_bytes["router2"] for each in timings)
    what = f"two sites of {len(case.place.lab.hosts) // 2}: bytes over the thin line"
    against_set(case, what, thin, 1.05)
    against_set(
        case,
        "the same, the other way",
        median(each.meter.from_bytes["router1"] for each in timings),
        None,
    )
    bytes_and_load(case, timings)


def calm(case: Case, rounds: int) -> None:
    """Measure two times: the time of the whole transfer, and the time from the arrival of the first
    piece on. Only the second time can be compared with the simulator's, because the simulator has
    no start-up.
    """
    begins: list[float] = []

    def watched() -> Round:
        with beginning(case, begins):
            return ours(case)

    timings = turns({"tfdeploy": watched}, rounds)["tfdeploy"]
    against_wire(case, case.what, [each.seconds for each in timings], None)
    moving = [
        each.began + each.complete_s - begin for each, begin in zip(timings, begins, strict=True)
    ]
    against_wire(
        case, f"{case.what}: from the first piece until all files are in place", moving, None
    )
    bytes_and_load(case, timings)


@contextmanager
def beginning(case: Case, begins: list[float]) -> Iterator[None]:
    """While the block runs, wait in a thread until a host has received half a piece, and append the
    UTC time of that moment to `begins`.

    The thread starts no process, because that would slow down the measurement.
    """
    pids = [row["pid"] or 0 for row in case.place.lab.status()]
    before = {pid: received(pid) for pid in pids}
    deadline = time.monotonic() + HALF_WAY_S

    def wait_for_half_a_piece() -> None:
        while time.monotonic() < deadline:
            if any(received(pid) - count > HALF_A_PIECE for pid, count in before.items()):
                begins.append(time.time())
                return
            time.sleep(POLL_S)

    looking = threading.Thread(target=wait_for_half_a_piece)
    looking.start()
    yield
    looking.join()


def turns(rivals: dict[str, Callable[[], Round]], rounds: int) -> dict[str, list[Round]]:
    """Run each rival in turn, `rounds` times.

    No round is a warm-up, because caches do not matter for bytes on a wire.
    """
    rounds_by_tool: dict[str, list[Round]] = {name: [] for name in rivals}
    for number in range(rounds):
        for name, run in rivals.items():
            rounds_by_tool[name].append(run())
            last = rounds_by_tool[name][-1]
            say(
                f"round {number + 1}: {name} {last.seconds:.2f} s, machine busy "
                f"{last.meter.busy:.0%}"
            )
    return rounds_by_tool


def against_wire(case: Case, what: str, seconds: list[float], goal: float | None) -> None:
    case.figures.add(
        what,
        median(seconds),
        "s",
        ratio=median(seconds) / case.wire_s,
        against="the wire",
        goal=goal,
    )


def against_set(case: Case, what: str, count: float, goal: float | None) -> None:
    case.figures.add(
        what, count / MB, "MB", ratio=count / (case.megabytes * MB), against="the set", goal=goal
    )


def bytes_and_load(case: Case, rounds: list[Round]) -> None:
    """Add figures about the bytes sent, the CPU time and the load of the machine. CPU times are
    medians of all rounds. All other figures are the highest of all rounds.
    """
    hosts = case.place.lab.hosts
    against_set(
        case,
        "  sent by the operator's link",
        max(each.meter.from_bytes["operator"] for each in rounds),
        None,
    )
    for what, counted in (("to", "to_bytes"), ("from", "from_bytes")):
        most = max(getattr(each.meter, counted)[host] for each in rounds for host in hosts)
        against_set(case, f"  {what} the host with the most", most, None)
    case.figures.add("  CPU of the client", median(each.spent.cpu_s for each in rounds), "s")
    case.figures.add(
        "  CPU of all hosts together",
        median(each.spent.beside["hosts_cpu_s"] for each in rounds),
        "s",
    )
    busy = max(each.meter.busy for each in rounds)
    case.figures.add(
        f"  machine busy ({'' if busy < COMPARABLE else 'not '}comparable with a simulator)",
        busy * 100,
        "%",
    )


if __name__ == "__main__":
    main()
