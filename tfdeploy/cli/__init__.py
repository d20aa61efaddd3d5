"""The command line. One small module per verb: options -> values -> one operation + one renderer.

A verb's module has `Flags`, what was typed; `add(subparsers)`, which ends with `carried_out_by(parser, Flags, run)`
and `run(flags) -> exit code`. A verb that refuses --limit and --exclude says so in its record.
Errors are raised as TfdeployError and shown by main. Heavy imports stand inside `run`: `--help` must stay quick.
"""
