"""The scripts of `benchmarks/` import each other by their names alone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "simulator"))
