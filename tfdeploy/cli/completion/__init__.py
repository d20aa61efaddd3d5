"""Make the scripts with which bash, zsh and fish complete command lines of tfdeploy.

A script has all verbs, flags and choices as rows. It reads names of hosts, roles, tasks and runs
from the files of `store/names.py`, with builtins of the shell only. bash and zsh share `rows.sh`.
"""
