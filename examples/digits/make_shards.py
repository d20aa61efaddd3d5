"""Writes the 1,797 digits of digits.csv.gz as shards: data/digits/train-0-of-6.npz ..., test.npz.

    python make_shards.py [--out data/digits] [--shards 6]

Deterministic: the same files, byte for byte, every time (train 1,437 digits, test 360).
"""

import argparse
import io
import os
import zipfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TEST = 360


def write(path, images, labels):
    """Like np.savez, but without the time of day in the archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("images", images), ("labels", labels)):
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(
                zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), content.getvalue()
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(HERE, "data", "digits"))
    parser.add_argument("--shards", type=int, default=6)
    args = parser.parse_args()

    digits = np.loadtxt(os.path.join(HERE, "digits.csv.gz"), delimiter=",")
    images = (digits[:, :64] / 16.0).astype(np.float32)
    labels = digits[:, 64].astype(np.int32)
    order = np.random.RandomState(1797).permutation(len(images))
    images, labels = images[order], labels[order]

    os.makedirs(args.out, exist_ok=True)
    write(os.path.join(args.out, "test.npz"), images[:TEST], labels[:TEST])
    for shard in range(args.shards):
        name = "train-%d-of-%d.npz" % (shard, args.shards)
        write(
            os.path.join(args.out, name),
            images[TEST + shard :: args.shards],
            labels[TEST + shard :: args.shards],
        )
    print(
        "%d digits in %d shards and a test set of %d: %s"
        % (len(images) - TEST, args.shards, TEST, args.out)
    )


if __name__ == "__main__":
    main()
