"""Support TensorFlow 0.x: its names, and its order of positional arguments.

The calls `concat(dim, values)`, `split(dim, num, value)`, `reverse(x, [False, True])`,
`nce_loss(weights, biases, inputs, labels)` and `resize_images(images, height, width)` are
recognized if the types of the arguments allow no other interpretation.

Before TensorFlow 1.0, the cross entropy functions took (logits, labels). In TensorFlow 1 they
rejected positional arguments. In compat.v1 they have no such check and silently read (labels,
logits): with 2.21, the loss of [1, 2, 3] for class 2 is 6.31 instead of 0.41. So this module reads
positional arguments in the order from before 1.0, unless the first argument is integer labels and
the second is logits.

All this applies only to `import tensorflow`. It never applies to tensorflow.compat.v1, because a
program that imports tensorflow.compat.v1 was written for the order of TensorFlow 2. The module is
active only with TFDEPLOY_TASK_COMPAT=v1.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from .. import task
from . import call_site, removed_names

_Args = Tuple[Any, ...]
_Named = Dict[str, Any]
# A function that gets the arguments of a call. If the call has the form of TensorFlow 0.x, the
# function returns the arguments by their present names. For any other call it returns None.
OldCallConverter = Callable[[_Args, _Named], Optional[_Named]]
_SAMPLED = (
    "weights biases inputs labels num_sampled num_classes num_true sampled_values "
    "remove_accidental_hits"
)


def adapt_to_version0(name: str, replacement: Any) -> Any:
    """Return an object that behaves as `name` did in TensorFlow 0.x.

    `replacement`: the object that has replaced `name`."""
    if name in _SUMMARIES:
        return _make_summary_function(*_SUMMARIES[name])
    return _accept_old_call(replacement, _CONVERTERS[name]) if name in _CONVERTERS else replacement


def accept_old_calls(module: Any, prefix: str) -> None:
    """Let functions of `module` accept both the old and the present order of arguments.

    `prefix`: what programs write before the names of the module: "" or "nn."."""
    for name, convert_old_call in _CONVERTERS.items():
        part, _, last = name.rpartition(".")
        if (
            part == prefix.rstrip(".")
            and name not in removed_names.RENAMED
            and hasattr(module, last)
        ):
            setattr(module, last, _accept_old_call(getattr(module, last), convert_old_call))


def _accept_old_call(function: Any, convert_old_call: OldCallConverter) -> Any:
    """Return a function that accepts the calls of `function` and also calls of TensorFlow 0.x."""

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        arguments = convert_old_call(args, kwargs)
        return function(*args, **kwargs) if arguments is None else function(**arguments)

    return either


def _name_arguments(args: _Args, kwargs: _Named, order: str, **renames: str) -> _Named:
    """Return the arguments of a call by their present names. Arguments that are None are left out.

    `order`: the present names of the arguments, in the order of TensorFlow 0.x. `renames`: name in
    TensorFlow 0.x -> present name."""
    pairs = [
        *zip(order.split(), args),
        *((renames.get(name, name), value) for name, value in kwargs.items()),
    ]
    return {name: value for name, value in pairs if value is not None}


def _make_axis_first_converter(order: str, values: str, **renames: str) -> OldCallConverter:
    """Return the converter for a function of TensorFlow 0.x that took the axis as first argument.

    `order` and `renames` are those of _name_arguments. `values`: the name of the first argument in
    `order` that is never a number. It distinguishes old calls from new calls."""
    until_values = order.split().index(values) + 1

    def convert_old_call(args: _Args, kwargs: _Named) -> Optional[_Named]:
        is_axis_first = bool(args and _is_number(args[0])) and (
            values in kwargs or not all(map(_is_number, args[:until_values]))
        )
        is_old = is_axis_first or renames.keys() & kwargs.keys()
        return _name_arguments(args, kwargs, order, **renames) if is_old else None

    return convert_old_call


def _convert_reverse_call(args: _Args, kwargs: _Named) -> Optional[_Named]:
    arguments = _name_arguments(args, kwargs, "tensor axis name", dims="axis")
    dims = arguments.get("axis")
    if (
        not isinstance(dims, (list, tuple))
        or not dims
        or not all(isinstance(each, bool) for each in dims)
    ):
        return None
    return dict(arguments, axis=[at for at, is_reversed in enumerate(dims) if is_reversed])


def _convert_resize_call(args: _Args, kwargs: _Named) -> Optional[_Named]:
    arguments = _name_arguments(args, kwargs, "images new_height new_width method align_corners")
    if not (_is_number(arguments.get("new_height")) and _is_number(arguments.get("new_width"))):
        return None
    return dict(arguments, size=[arguments.pop("new_height"), arguments.pop("new_width")])


def _convert_sampled_loss_call(args: _Args, kwargs: _Named) -> Optional[_Named]:
    return (
        _name_arguments(args, kwargs, _SAMPLED)
        if len(args) > 3 and (_dtype_kind(args[2]), _dtype_kind(args[3])) == ("f", "i")
        else None
    )


def _make_cross_entropy_converter(name: str, more_arguments: str) -> OldCallConverter:
    def convert_old_call(args: _Args, kwargs: _Named) -> Optional[_Named]:
        # In TensorFlow 1 the first parameter was a placeholder that only accepted None, so this is
        # a call in the form of TensorFlow 1.
        if args and args[0] is None:
            return _name_arguments(args[1:], kwargs, "labels logits " + more_arguments)
        today = len(args) > 1 and (_dtype_kind(args[0]), _dtype_kind(args[1])) == ("i", "f")
        if today or not (args and "logits" not in kwargs or "targets" in kwargs):
            return None
        if args:
            template = (
                "%s: the arguments of tf.nn.%s have no names, so their order is taken to be "
                "(logits, labels), as before TensorFlow 1.0"
            )
            task.print_once(template % (call_site.find_call_site() or "the program", name))
        return _name_arguments(args, kwargs, "logits labels " + more_arguments, targets="labels")

    return convert_old_call


def _make_summary_function(op: str, order: str) -> Any:
    """Return a summary function of TensorFlow 0.x.

    The function does not change the tag, even if it contains blanks, and does not add the name
    scope to it. `op`: the raw operation. `order`: the names of the operation's arguments."""
    version1 = sys.modules["tensorflow"].compat.v1

    def summary(*args: Any, **kwargs: Any) -> Any:
        arguments = _name_arguments(args, kwargs, order + " collections name")
        collections = arguments.pop("collections", [version1.GraphKeys.SUMMARIES])
        operation = getattr(version1.raw_ops, op)(**arguments)
        version1.add_to_collections(collections, operation)
        return operation

    return summary


def _is_number(value: Any) -> bool:
    """Return True if the value is a single integer: an int, or an integer tensor or array without
    dimensions."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return isinstance(value, int) and not isinstance(value, bool)
    return (
        _dtype_kind(value) == "i" and (shape.ndims if hasattr(shape, "ndims") else len(shape)) == 0
    )


def _dtype_kind(value: Any) -> str:
    """Return the kind of a tensor or array: "i" for integers, "f" for floats.

    For a NumPy array of another type, return NumPy's letter for the type. For any other value,
    return ""."""
    dtype: Any = getattr(value, "dtype", None)
    if hasattr(dtype, "kind"):
        return str(dtype.kind).replace("u", "i")
    return (
        "i"
        if getattr(dtype, "is_integer", False)
        else "f"
        if getattr(dtype, "is_floating", False)
        else ""
    )


_SUMMARIES = {
    "audio_summary": ("AudioSummaryV2", "tag tensor sample_rate max_outputs"),
    "histogram_summary": ("HistogramSummary", "tag values"),
    "image_summary": ("ImageSummary", "tag tensor max_images"),
    "scalar_summary": ("ScalarSummary", "tags values"),
}
_CONVERTERS: Dict[str, OldCallConverter] = {
    "batch_matmul": lambda args, kwargs: _name_arguments(
        args,
        kwargs,
        "a b adjoint_a adjoint_b name",
        x="a",
        y="b",
        adj_x="adjoint_a",
        adj_y="adjoint_b",
    ),
    "select": lambda args, kwargs: _name_arguments(
        args, kwargs, "condition x y name", t="x", e="y"
    ),
    "concat": _make_axis_first_converter("axis values name", "values", concat_dim="axis"),
    "split": _make_axis_first_converter(
        "axis num_or_size_splits value name",
        "value",
        split_dim="axis",
        num_split="num_or_size_splits",
    ),
    "reverse": _convert_reverse_call,
    "image.resize_images": _convert_resize_call,
    "nn.nce_loss": _convert_sampled_loss_call,
    "nn.sampled_softmax_loss": _convert_sampled_loss_call,
    "nn.sigmoid_cross_entropy_with_logits": _make_cross_entropy_converter(
        "sigmoid_cross_entropy_with_logits", "name"
    ),
    "nn.softmax_cross_entropy_with_logits": _make_cross_entropy_converter(
        "softmax_cross_entropy_with_logits", "dim name"
    ),
    "nn.sparse_softmax_cross_entropy_with_logits": _make_cross_entropy_converter(
        "sparse_softmax_cross_entropy_with_logits", "name"
    ),
}
