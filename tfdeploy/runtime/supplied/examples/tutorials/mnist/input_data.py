"""Supply read_data_sets of the MNIST tutorial. The function reads the four idx files, plain or as
.gz, from a folder. It never downloads files."""

import collections
import errno
import functools
import gzip
import json
import os
import struct
import sys

import numpy
import tensorflow.compat.v1 as tf

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])

# The default of the argument `source_url`, which is ignored because files are never downloaded.
SOURCE_URL = ""
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MAGIC = {"images": 2051, "labels": 2049}


class DataSet(object):
    """Images and labels, which are returned in batches and shuffled again in each epoch."""

    def __init__(
        self,
        images,
        labels,
        fake_data=False,
        one_hot=False,
        dtype=tf.float32,
        reshape=True,
        seed=None,
    ):
        dtype = tf.as_dtype(dtype).base_dtype
        if dtype not in (tf.uint8, tf.float32):
            raise TypeError("Invalid image dtype %r, expected uint8 or float32" % dtype)
        self._random = numpy.random.RandomState(tf.get_seed(seed)[0 if seed is None else 1])
        if fake_data:
            self._num_examples, self.one_hot = 10000, one_hot
        else:
            assert images.shape[0] == labels.shape[0], ("images.shape: %s labels.shape: %s") % (
                images.shape,
                labels.shape,
            )
            self._num_examples = images.shape[0]
            if reshape:
                assert images.shape[3] == 1
                images = images.reshape(images.shape[0], images.shape[1] * images.shape[2])
            if dtype == tf.float32:
                images = numpy.multiply(images.astype(numpy.float32), 1.0 / 255.0)
        self._fake_data = fake_data
        self._images, self._labels = images, labels
        self._epochs_completed = 0
        self._index_in_epoch = 0

    images = property(lambda self: self._images)
    labels = property(lambda self: self._labels)
    num_examples = property(lambda self: self._num_examples)
    epochs_completed = property(lambda self: self._epochs_completed)

    def next_batch(self, batch_size, fake_data=False, shuffle=True):
        """Return the next `batch_size` images and labels. A batch at the end of an epoch is filled
        up from the next epoch."""
        if fake_data or self._fake_data:
            label = [1] + [0] * 9 if self.one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [label for _ in range(batch_size)]
        start = self._index_in_epoch
        if start == 0 and self._epochs_completed == 0 and shuffle:
            self._shuffle()
        if start + batch_size <= self._num_examples:
            self._index_in_epoch = start + batch_size
            return self._images[start : self._index_in_epoch], self._labels[
                start : self._index_in_epoch
            ]
        self._epochs_completed += 1
        rest_images, rest_labels = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        self._index_in_epoch = end = batch_size - (self._num_examples - start)
        images = numpy.concatenate((rest_images, self._images[:end]), axis=0)
        return images, numpy.concatenate((rest_labels, self._labels[:end]), axis=0)

    def _shuffle(self):
        order = self._random.permutation(self._num_examples)
        self._images, self._labels = self._images[order], self._labels[order]


def read_data_sets(
    train_dir,
    fake_data=False,
    one_hot=False,
    dtype=tf.float32,
    reshape=True,
    validation_size=5000,
    seed=None,
    source_url=SOURCE_URL,
):
    """Return Datasets(train, validation, test). Raises FileNotFoundError with the names of all
    missing files."""
    if fake_data:
        fake = DataSet([], [], fake_data=True, one_hot=one_hot, dtype=dtype, seed=seed)
        return Datasets(train=fake, validation=fake, test=fake)
    train_images, train_labels, test_images, test_labels = _paths(train_dir)
    images, labels = extract_images(train_images), extract_labels(train_labels, one_hot)
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            "Validation size should be between 0 and {}. Received: {}.".format(
                len(images), validation_size
            )
        )
    make = functools.partial(DataSet, dtype=dtype, reshape=reshape, seed=seed)
    return Datasets(
        train=make(images[validation_size:], labels[validation_size:]),
        validation=make(images[:validation_size], labels[:validation_size]),
        test=make(extract_images(test_images), extract_labels(test_labels, one_hot)),
    )


def extract_images(f):
    """Return the images in a file, as a uint8 array [index, y, x, 1]. `f`: a path or an open .gz
    file."""
    count, rows, columns, rest = _read(f, "images", ">III")
    return numpy.frombuffer(rest, dtype=numpy.uint8, count=count * rows * columns).reshape(
        count, rows, columns, 1
    )


def extract_labels(f, one_hot=False, num_classes=10):
    """Return the labels in a file: a uint8 array [index], or, if `one_hot` is True, a float64 array
    [index, class]. `f`: a path or an open .gz file."""
    count, rest = _read(f, "labels", ">I")
    labels = numpy.frombuffer(rest, dtype=numpy.uint8, count=count)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense, num_classes):
    return numpy.eye(num_classes)[labels_dense]


def load_mnist(train_dir="MNIST-data"):
    return read_data_sets(train_dir)


def _paths(folder):
    """Return the paths of the four MNIST files in `folder`. If files are missing there, and exactly
    one data set of the job has all four files, return the paths in this data set, because programs
    often contain the path of a folder of their author. Otherwise raise FileNotFoundError."""
    paths = _find_files(folder)
    if None not in paths:
        return paths
    complete = [data_set for data_set in _data_sets() if None not in _find_files(data_set)]
    if len(complete) == 1:
        sys.stderr.write(
            "tfdeploy: %s has no MNIST files, so they are read "
            "from the data set in %s\n" % (folder, complete[0])
        )
        return _find_files(complete[0])
    missing = ", ".join(name for name, path in zip(FILES, paths) if path is None)
    in_code = (
        ""
        if os.path.isabs(folder)
        else "; or put them into %s of the code" % os.path.normpath(folder)
    )
    raise FileNotFoundError(
        errno.ENOENT,
        "put MNIST's four files into a folder, and write `data: {mnist: FOLDER}` in the job "
        "file%s; tfdeploy downloads nothing, and found no %s here, also not as .gz (it cannot read "
        ".npz)"
        % (in_code, missing),
        os.path.abspath(folder),
    )


def _find_files(folder):
    """Return the path of each of FILES in the folder, or None for a file that is missing."""
    return [next((p for p in _variants(folder, name) if os.path.isfile(p)), None) for name in FILES]


def _data_sets():
    """Return the folders of the job's data sets on this host, as the plan names them; [] without a
    plan."""
    run = os.path.dirname(os.path.dirname(os.environ.get("TFDEPLOY_TASK_FOLDER", "")))
    try:
        with open(os.path.join(run, "plan.json"), encoding="utf-8") as plan:
            places = json.load(plan)["data"].values()
        return (
            [os.path.join(os.path.dirname(os.path.dirname(run)), place) for place in places]
            if run
            else []
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return []


def _variants(folder, name):
    dotted = name.replace("-idx", ".idx")
    return [os.path.join(folder, each + end) for each in (name, dotted) for end in (".gz", "")]


def _read(f, kind, header):
    path = f if isinstance(f, str) else getattr(f, "name", "the file")
    if not isinstance(f, str):
        content = gzip.GzipFile(fileobj=f).read()
    else:
        with gzip.open(f, "rb") if f.endswith(".gz") else open(f, "rb") as stream:
            content = stream.read()
    size = 4 + struct.calcsize(header)
    magic = struct.unpack(">I", content[:4])[0] if len(content) >= size else None
    if magic != _MAGIC[kind]:
        raise ValueError("Invalid magic number %s in MNIST %s file: %s" % (magic, kind[:-1], path))
    return struct.unpack(header, content[4:size]) + (content[size:],)
