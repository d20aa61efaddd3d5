"""Writes down what it got, byte for byte.

    python echoing.py OUT WORD...

OUT/got.json has, in hexadecimal, the program's arguments, its environment variables V0, V1 ..., and
the names of files in folders. Each file of the folder `odd` is copied to OUT/odd, and its name is
printed as it is.
"""
import json
import os
import shutil
import sys


def main():
    out, names = os.fsencode(sys.argv[1]), sorted(os.listdir(b"odd"))
    data = os.fsencode(os.environ["DATA"])
    got = {
        "words": [os.fsencode(word).hex() for word in sys.argv[2:]],
        "variables": {
            key: os.fsencode(value).hex()
            for key, value in os.environ.items()
            if key[:1] == "V" and key[1:].isdigit()
        },
        "code": [name.hex() for name in names],
        "data": [name.hex() for name in sorted(os.listdir(data))],
    }
    os.makedirs(os.path.join(out, b"odd"))
    for name in names:
        shutil.copy(os.path.join(b"odd", name), os.path.join(out, b"odd", name))
        sys.stdout.buffer.write(name + b"\n")
    with open(os.path.join(out, b"got.json"), "w") as stream:
        json.dump(got, stream)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
