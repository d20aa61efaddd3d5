"""Writes one TensorBoard scalar into its working directory and one below keep. Then ends.

    python events.py --job_name=worker --task_index=0

It writes them by hand, so no TensorFlow is needed.

--summaries: worker:0 also writes the summaries that a TensorFlow 1 program usually writes for its
variables, and prints no step. Each of the other workers prints one step, followed by a text as long
as a traceback.
"""
import argparse
import os
import signal
import struct
import time


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in bytearray(data):
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc32c(length) + data + crc32c(data)


def block(number, data):
    return bytes(bytearray([number << 3 | 2, len(data)])) + data


def event(step, body):
    return b"\x09" + struct.pack("<d", time.time()) + bytes(bytearray([0x10, step])) + body


def write(folder, tag, number=0.5, steps=3):
    os.makedirs(folder, exist_ok=True)
    value = block(1, tag.encode()) + b"\x15" + struct.pack("<f", number)
    with open(os.path.join(folder, "events.out.tfevents.1.host"), "ab") as events:
        events.write(record(event(0, block(3, b"brain.Event:2"))))
        for step in range(1, steps + 1):
            events.write(record(event(step, block(5, block(1, value)))))


def write_summaries(index):
    if index:
        print("step 41 loss 0.125")
        print("\n".join('  File "train.py", line %d, in train' % line for line in range(400)))
        return
    for number in range(20):
        write("logs", "layer%d/weights/summaries/mean_1" % number)
    write("logs", "Variable_4/sec", 0.0)
    write("logs", "global_step/sec", 12.5, steps=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--summaries", action="store_true")
    args = parser.parse_args()
    if args.job_name == "ps":
        signal.pause()
    write("train", "loss")
    write("ckpt/kept", "accuracy")
    if args.summaries:
        write_summaries(args.task_index)


if __name__ == "__main__":
    main()
