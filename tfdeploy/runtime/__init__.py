"""Runs inside the training process, in the user's interpreter, with the user's TensorFlow.

`site/sitecustomize.py`, first on the task's PYTHONPATH, starts `hooks`, which applies the patches
that `patches` lists as their modules are imported. Standard library only, Python 3.8 syntax,
relative imports only: in the task this package is called `_tfdeploy_runtime`, so that it cannot
shadow a module of the user. Whatever fails in here, it must neither break nor noticeably slow the
program. Holds for TensorFlow 2.12 to 2.21.
"""
