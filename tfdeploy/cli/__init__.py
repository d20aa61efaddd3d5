"""The command line: each verb turns its flags into values, one operation and one renderer.

`arguments/VERB.py` has the record `Flags` of a verb; each field of it declares one flag.
`verbs/VERB.py` has `run(flags)`, which returns the exit code. It is imported after the command line
has been read, so `--help` is quick. Its imports stand at the top of the module. An import stands
inside a function if only some command lines need it, or if it is slow and dialling the hosts can
begin first. Verbs raise TfdeployError; `main` prints it.
"""
