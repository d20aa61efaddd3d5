"""Carry out each verb: one module per verb.

Operations take values and a fleet, emit events and return values. They never print.
"""
