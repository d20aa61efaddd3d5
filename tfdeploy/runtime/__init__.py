"""Patch TensorFlow inside the training process, which runs in the user's interpreter.

The folder of `site/sitecustomize.py` is the first folder in the task's PYTHONPATH, so every Python
process of the task runs this file first. The file starts the module `hooks`. When the program
imports a module, `hooks` applies the patches that the module `patches` lists for the imported
module. The patches are for TensorFlow 2.12 to 2.21.

This package uses only the standard library, the syntax of Python 3.8, and relative imports. In the
task the package is named `_tfdeploy_runtime`, so that it cannot shadow a module of the user. An
error in the package must neither break nor noticeably slow down the program.
"""
