"""Define an error as the agent sends it: see agent/serve/call.py."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.model.typed import Answer, Code, Scalar, Text

_Few = Annotated[list[Scalar], Meta(max_length=10_000)]
_Fields = Annotated[dict[Text, Scalar], Meta(max_length=1000)]


class Failure(Answer):
    code: Code
    what: Text
    where: Text | None = None
    advice: Code | None = None  # the key of a text in LINES of model/advice.py
    details: Annotated[dict[Text, Scalar | _Few | _Fields], Meta(max_length=1000)] = {}
