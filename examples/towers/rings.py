"""Points on four rings around the origin, with noise, and the ring that each belongs to."""

import numpy as np

RINGS = 4


def batch(random, count):
    labels = random.randint(RINGS, size=count)
    radius = (1 + labels + 0.1 * random.randn(count)) / 2
    angle = random.uniform(0, 2 * np.pi, size=count)
    return (
        np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32),
        labels.astype(np.int32),
    )
