"""The units that durations and sizes are written in. In seconds and bytes each."""

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = (
    {"B": 1}
    | {p + "B": 1000**n for n, p in enumerate("kMGT", 1)}
    | {"KB": 1000}
    | {p + "iB": 1024**n for n, p in enumerate("KMGT", 1)}
)
