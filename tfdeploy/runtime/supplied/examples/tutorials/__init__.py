"""Contain the package `tutorials.mnist`, and nothing else."""
