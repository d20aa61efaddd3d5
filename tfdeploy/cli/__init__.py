"""The command line: flags -> values -> one operation + one renderer.

`arguments/VERB.py` has the verb's record `Flags`: each field declares its flag. `VERB.py` has
`run(flags) -> exit code`; it is imported once the command line has been read, so `--help` is quick
and the module's imports stand at its top. An import inside a function is for what only some command
lines need, or for what takes longer than dialling the hosts, which is begun first. Errors are
raised as TfdeployError and shown by main.
"""
