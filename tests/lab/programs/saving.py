"""Saves a checkpoint every 0.3 s, in the order of TensorFlow's saver: it writes the files, then the
record, and then deletes the oldest checkpoint. A file `pause` may hold another number of seconds.

    python saving.py --job_name=worker --task_index=0 [--kept=N]

The data of checkpoint N is the number N, written 1000 times. So a reader can tell whether a copy of
the data is complete.
"""
import argparse
import os
import signal
import time


def save(number, kept):
    with open("ckpt/model.ckpt-%d.data" % number, "w") as data:
        for _ in range(1000):
            data.write("%d " % number)
    with open("ckpt/model.ckpt-%d.index" % number, "w") as index:
        index.write(str(number))
    with open("ckpt/checkpoint.new", "w") as record:
        record.write('model_checkpoint_path: "model.ckpt-%d"\n' % number)
    os.rename("ckpt/checkpoint.new", "ckpt/checkpoint")
    for ending in ("data", "index"):
        old = "ckpt/model.ckpt-%d.%s" % (number - kept, ending)
        if os.path.exists(old):
            os.unlink(old)


def pause_s():
    try:
        with open("pause") as file:
            return float(file.read())
    except (IOError, ValueError):
        return 0.3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--kept", type=int, default=5)
    args = parser.parse_args()
    if args.job_name == "ps" or args.task_index > 0:
        signal.pause()
    number = 0
    while True:
        number += 1
        save(number, args.kept)
        print("step", number, flush=True)
        time.sleep(pause_s())


if __name__ == "__main__":
    main()
