"""What runs inside the training process, in the user's own interpreter, with the user's own TensorFlow.

`site/sitecustomize.py` is first on the task's PYTHONPATH and starts it; `hooks` waits for the TensorFlow
modules that `patches` names and mends them as they are imported. Standard library only, Python 3.8
syntax, relative imports only (in the task this package is called `_tfdeploy_runtime`, so that nothing
of ours can shadow a module of the user). It must never break or noticeably slow a program, whatever
happens inside it. Holds for TensorFlow 2.12 to 2.21.
"""
