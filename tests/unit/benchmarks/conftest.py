"""Add the simulator's folder to sys.path, because the simulator's scripts import each other without
a package name.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "simulator"))
