"""Write the four files of MNIST in idx format. The images are made from the handwritten digits of
examples/digits.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

DIGITS = Path(__file__).parents[3] / "examples/digits/digits.csv.gz"
# Programs take the first 5,000 images for validation unless they set another number.
TRAIN, TEST = 5700, 300


def write(folder: Path, *, train: int = TRAIN, test: int = TEST) -> None:
    """Write the four files.

    The images are compressed and the labels are not, so that a test reads both forms.
    """
    import numpy as np

    digits = np.loadtxt(DIGITS, delimiter=",")
    grey = (digits[:, :64].reshape(-1, 8, 8) / 16.0 * 255.0).astype(np.uint8)
    images = np.pad(np.kron(grey, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    chosen = np.random.RandomState(1797).randint(len(images), size=train + test)
    shift = np.random.RandomState(28).randint(-2, 3, size=(train + test, 2))
    drawn = np.stack(
        [np.roll(images[at], tuple(shift[row]), (0, 1)) for row, at in enumerate(chosen)]
    )
    labels = digits[chosen, 64].astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", slice(0, train)), ("t10k", slice(train, None))):
        pixels, classes = drawn[part], labels[part]
        head = struct.pack(">IIII", 2051, *pixels.shape)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(head + pixels.tobytes(), 1, mtime=0)
        )
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, len(classes)) + classes.tobytes()
        )
