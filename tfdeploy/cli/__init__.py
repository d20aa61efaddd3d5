"""Parse the command line, run one verb, and print its result.

Each verb turns its flags into values, calls one operation and prints with one renderer.
`arguments/VERB.py` has the verb's record `Flags`, in which each field declares one flag.
`verbs/VERB.py` has `run(flags)`, which returns the exit code. The module `verbs/VERB.py` is
imported after the command line has been read, so that `--help` is quick. Imports are at the top of
a module. An import is inside a function if only some command lines need it, or if it is slow and
connections to the hosts can be started first. Verbs raise TfdeployError, which `main` prints.
"""
