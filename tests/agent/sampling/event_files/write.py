"""Write event files with TensorFlow to the folder that the first argument names, then print the
CRCs that TensorFlow computes for some texts.

Usage: python write.py FOLDER
"""

import glob
import os
import struct
import sys
from pathlib import Path

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow as tf

V1 = tf.compat.v1
TYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
ODD_VALUES = {"nan": float("nan"), "inf": float("inf")}


def value_of(kind):
    if kind == "bool":
        return True
    return 7 if kind.startswith("uint") else -7 if kind.startswith("int") else 0.5


def write_version1(folder):
    """Write events as programs for TensorFlow 1 do: scalars in the field `simple_value` of merged
    summaries, together with histograms, images and texts.
    """
    with tf.Graph().as_default(), V1.Session() as session:
        loss = V1.placeholder(tf.float32, [])
        V1.summary.scalar("loss", loss)
        V1.summary.scalar("layer/accuracy", 1.0 - loss)
        V1.summary.histogram("weights", loss * tf.ones([100]))
        V1.summary.image("picture", tf.zeros([1, 4, 4, 1]))
        V1.summary.text("words", tf.constant("1.5"))
        merged = V1.summary.merge_all()
        writer = V1.summary.FileWriter(folder, session.graph)
        for step, at in ((1, 0.75), (2, 0.5), (3, 0.25)):
            writer.add_summary(session.run(merged, {loss: at}), step)
        writer.add_session_log(V1.SessionLog(status=V1.SessionLog.START), 3)
        writer.close()


def write_lists(folder):
    """Write tensors whose values are in lists such as `float_val` and `int_val`. Some of these
    tensors are not scalars.
    """
    with tf.Graph().as_default():
        writer = V1.summary.FileWriter(folder)
        tensors = {kind: tf.make_tensor_proto(value_of(kind), kind) for kind in (*TYPES, "bool")}
        tensors.update(
            {"zero": tf.make_tensor_proto(0.0), "one of one": tf.make_tensor_proto([5.0])}
        )
        tensors.update(
            {"two": tf.make_tensor_proto([1.0, 2.0]), "text": tf.make_tensor_proto("1.5")}
        )
        for name, tensor in tensors.items():
            writer.add_summary(V1.Summary(value=[V1.Summary.Value(tag=name, tensor=tensor)]), 1)
        for name, value in ODD_VALUES.items():
            writer.add_summary(
                V1.Summary(value=[V1.Summary.Value(tag=name, simple_value=value)]), 1
            )
        writer.close()


def write_version2(folder):
    scalar = V1.SummaryMetadata(plugin_data=V1.SummaryMetadata.PluginData(plugin_name="scalars"))
    other = V1.SummaryMetadata(plugin_data=V1.SummaryMetadata.PluginData(plugin_name="hparams"))
    with tf.summary.create_file_writer(folder).as_default():
        for step in range(3):
            tf.summary.scalar("epoch_loss", 1.0 / (step + 1), step=step)
            tf.summary.histogram("weights", tf.random.normal([100]), step=step)
        for kind in (*TYPES, "bool"):
            tf.summary.write(kind, tf.constant(value_of(kind), kind), step=3, metadata=scalar)
        tf.summary.write("no scalar", tf.constant(1.0), step=3, metadata=other)
        tf.summary.text("words", "1.5", step=3)
        tf.summary.image("picture", tf.zeros([1, 4, 4, 1]), step=3)


def main():
    top = sys.argv[1]
    for name, write in (
        ("version1", write_version1),
        ("lists", write_lists),
        ("version2", write_version2),
    ):
        write(os.path.join(top, name))
        (path,) = glob.glob(os.path.join(top, name, "events.out.tfevents.*"))
        os.rename(path, os.path.join(top, name + ".tfevents"))
        os.rmdir(os.path.join(top, name))
    for text in ("", "a", "123456789", "x" * 1000):
        with tf.io.TFRecordWriter(os.path.join(top, "record")) as writer:
            writer.write(text.encode())
        print(text, struct.unpack("<I", Path(top, "record").read_bytes()[-4:])[0])


if __name__ == "__main__":
    main()
