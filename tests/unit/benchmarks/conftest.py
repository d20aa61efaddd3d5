"""Add the simulator's folder to sys.path: its scripts import each other by name alone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "simulator"))
