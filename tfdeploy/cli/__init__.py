"""The command line. One small module per verb: options -> values -> one operation + one renderer.

A verb's module has `add(subparsers)`, which sets `parser.set_defaults(run=run)`, and `run(args) -> exit code`.
Errors are raised as TfdeployError and shown by main. Heavy imports stand inside `run`: `--help` must stay quick.
"""
