"""tfdeploy: TensorFlow clusters over plain SSH.

This package travels to the hosts as well (agent and runtime), so this file keeps to Python 3.8
syntax and imports nothing.
"""

__version__ = "0.1.0"
