"""Write tiny wheels, which `setup` installs in tests without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, *, requires: tuple[str, ...] = (), text: str = ""
) -> Path:
    """Write a pure wheel with one module. The module has `VERSION = version` and then `text`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n{text}")
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        wheel.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(
            f"{about}/RECORD",
            f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
        )
    return path
