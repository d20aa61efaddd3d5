"""Defines Call, the argument of every verb. A verb is a function that the control machine calls on
this host; docs/agent-protocol.md describes the verbs.

A module of verbs ends in `VERBS = {"name": function}`, which serve/server.py reads. Some verbs are
decorated with `requires_job_lock` or `audited`. A verb returns a JSON value, or raises VerbError. A
verb that answers with a stream calls `call.item` for each item, and returns when `call.cancelled`
is set.
"""

from __future__ import annotations

import threading

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional
from tfdeploy.agent.errors import VerbError, is_safe_name

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

# If a file system has no file locks, the control machine shows the advice with this name. Its text
# is in model/answers/failures.py.
NO_LOCKS = "local_workdir"


class SessionContext:
    """The state of one serve process. `closing_functions`: named functions that run when the
    session ends, for example to release locks and end programs."""

    def __init__(self, workdir: str, agent_dir: str, host: str = "") -> None:
        self.workdir = workdir  # an absolute path
        self.host = host  # this machine's name in the inventory of this session, or ""
        # The folder of the unpacked agent. `python -S -E agent_dir VERB` starts another process of
        # the agent.
        self.agent_dir = agent_dir
        self.closing_functions: Dict[str, Callable[[], None]] = {}
        self.begun_releases: Dict[str, Any] = {}  # staging folder -> release.staging.BegunRelease
        # These two fields are for audit_log.py: the entries that this session has written, and the
        # number of entries that it could not write.
        self.recorded_actions: List[object] = []
        self.unrecorded_actions = 0


class Call:
    """One call of a verb. `blob`: the bytes that the caller has sent after the arguments. `item`: a
    function that sends an item of a stream. `cancelled`: set once the caller no longer wants the
    answer."""

    def __init__(
        self,
        context: SessionContext,
        args: Unchecked,
        blob: bytes = b"",
        item: Optional[Callable[[Mapping[str, object], bytes], None]] = None,
        cancelled: Optional[threading.Event] = None,
    ) -> None:
        self.context, self.workdir, self.host = context, context.workdir, context.host
        self.args = args
        self.blob = blob
        self.item = item or (lambda header, blob: None)
        self.cancelled = cancelled or threading.Event()
        # Names of the secrets that this call brings to the host. The audit log records these names.
        self.secrets: List[str] = []

    @property
    def job(self) -> str:
        """Return the job that the call names. Raises VerbError bad_name."""
        return self.name("job")

    def name(self, key: str) -> str:
        """Return the argument `key`, which must be a name that is safe in a path. Raises VerbError
        bad_name."""
        return checked_name(self.args.get(key), key)

    # Each method below returns an argument of one type, and raises VerbError bad_argument if the
    # argument has another type. null counts as a missing argument.

    def text(self, key: str, default: str = "") -> str:
        return str(self._typed_argument(key, default, str))

    def integer(self, key: str, default: int = 0) -> int:
        return int(self._typed_argument(key, default, int))

    def number(self, key: str) -> Optional[float]:
        if self.args.get(key) is None:
            return None
        return float(self._typed_argument(key, 0.0, (int, float)))

    def flag(self, key: str) -> bool:
        return bool(self.args.get(key))

    def rows(self, key: str, *types: type) -> List[Any]:
        """Return the argument `key`, which must be a list. If `types` are given, each row of the
        list must have values of exactly these types."""
        rows = list(self._typed_argument(key, [], (list, tuple)))
        for row in rows if types else ():
            if not isinstance(row, (list, tuple)) or tuple(map(type, row)) != types:
                names = ", ".join([each.__name__ for each in types])
                raise VerbError(
                    "bad_argument",
                    "%s: the row %.200r must have the types [%s]" % (key, row, names),
                )
        return rows

    def table(self, key: str) -> Unchecked:
        return dict(self._typed_argument(key, {}, dict))

    def _typed_argument(self, key: str, default: object, kind: Any) -> Any:
        value = self.args.get(key) or default
        if not isinstance(value, kind):
            raise VerbError(
                "bad_argument", "the argument %s has the wrong type: %.200r" % (key, value)
            )
        return value


def checked_name(value: object, key: str = "") -> str:
    """Return the value, which must be a name that is safe in a path. `key`: the name of the
    argument, for the error message. Raises VerbError bad_name."""
    if not is_safe_name(value):
        what = (
            "%s %.200r is not a valid name: use at most 128 letters, digits, _ . -, no . or - first"
            % (key, value)
        )
        raise VerbError("bad_name", what.lstrip())
    return str(value)


Verb = Callable[[Call], object]


def requires_job_lock(verb: Verb) -> Verb:
    """Mark a verb that changes a job's files. Only a session that holds the job's lock may call it;
    see lock.ensure_job_lock."""
    vars(verb)["fenced"] = True
    return verb


def audited(operation: str, outcome: str) -> Callable[[Verb], Verb]:
    """Mark a verb that changes this host or reads files from it. The audit log then has an entry
    for each call. `operation`: the name of the operation in the entry. `outcome`: the outcome in
    the entry of a call that succeeds."""

    def mark(verb: Verb) -> Verb:
        vars(verb)["audited"] = (operation, outcome)
        return verb

    return mark
