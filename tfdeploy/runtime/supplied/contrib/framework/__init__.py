"""Supply tf.contrib.framework: the global step, variables of a graph, checkpoints, argument
scopes."""

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.train import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    init_from_checkpoint,
    list_variables,
    load_variable,
)
from tensorflow.contrib.framework.arg_scopes import add_arg_scope, arg_scope


def get_variables(scope=None, suffix=None, collection=tf.GraphKeys.GLOBAL_VARIABLES):
    """Return the variables of a collection that are in a scope (a name, or a VariableScope) and
    whose names end with `suffix`."""
    if isinstance(scope, tf.VariableScope):
        scope = scope.name
    if suffix is not None:
        scope = (scope or "") + ".*" + (suffix if ":" in suffix else suffix + ":")
    return tf.get_collection(collection, scope)


def get_trainable_variables(scope=None, suffix=None):
    return get_variables(scope, suffix, tf.GraphKeys.TRAINABLE_VARIABLES)


def get_variables_to_restore(include=None, exclude=None):
    """Return the variables in the scopes `include` (None: all variables), without the variables in
    the scopes `exclude`."""
    chosen = (
        get_variables()
        if include is None
        else [v for scope in include for v in get_variables(scope)]
    )
    without = {v.name for scope in exclude or () for v in get_variables(scope)}
    return [v for v in chosen if v.name not in without]


def assign_from_checkpoint_fn(
    model_path,
    var_list,
    ignore_missing_vars=False,
    reshape_variables=False,
    write_version=tf.train.SaverDef.V2,
):
    """Return a function that takes a session and restores the variables in it; None if there is
    nothing to restore. `var_list`: the variables, or name -> variable."""
    if ignore_missing_vars:
        there = tf.train.NewCheckpointReader(model_path).get_variable_to_shape_map()
        named = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
        var_list = {name: v for name, v in named.items() if name in there}
    if not var_list:
        tf.logging.warning("No Variables to restore")
        return None
    saver = tf.train.Saver(var_list, reshape=reshape_variables, write_version=write_version)
    return lambda session: saver.restore(session, model_path)
