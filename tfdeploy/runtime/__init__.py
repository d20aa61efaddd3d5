"""Patch TensorFlow inside the training process, in the user's interpreter.

`site/sitecustomize.py` is in the first folder of the task's PYTHONPATH and starts `hooks`. When a
module is imported, `hooks` applies the patches that `patches` lists for it. The patches are for
TensorFlow 2.12 to 2.21.

The package uses only the standard library, the syntax of Python 3.8, and relative imports: in the
task its name is `_tfdeploy_runtime`, so that it cannot shadow a module of the user. An error in it
must neither break nor noticeably slow down the program.
"""
