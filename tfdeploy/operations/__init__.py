"""Implement the verbs of `tfdeploy`: one module for each verb.

An operation takes values and a fleet (the connections to hosts), emits events, and returns values.
It never prints.
"""
