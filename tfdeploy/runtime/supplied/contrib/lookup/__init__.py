"""Supply the functions of tf.contrib.lookup that TensorFlow 2 does not have. removed_names.py lists
the functions that TensorFlow 2 has elsewhere."""

import tensorflow.compat.v1 as tf
from tensorflow.python.ops.lookup_ops import (
    index_table_from_tensor,
    index_to_string_table_from_tensor,
)


def HashTable(initializer, default_value, shared_name=None, name=None):
    """Return an immutable table. `shared_name` is ignored: TensorFlow 2 chooses the name."""
    return tf.lookup.StaticHashTable(initializer, default_value, name=name)


def string_to_index(tensor, mapping, default_value=-1, name=None):
    """Return the index in `mapping` of each string of `tensor`. The operation
    tf.tables_initializer() fills the table."""
    return index_table_from_tensor(mapping, default_value=default_value).lookup(tensor, name)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    """Return the string of `mapping` at each index of `tensor`. The operation
    tf.tables_initializer() fills the table."""
    return index_to_string_table_from_tensor(mapping, default_value=default_value).lookup(
        tf.cast(tensor, tf.int64), name
    )
