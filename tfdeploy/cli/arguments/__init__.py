"""Declare the flags of each verb in a module of its own, so that --help imports nothing else."""
