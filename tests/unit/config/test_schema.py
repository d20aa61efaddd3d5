"""Test that an error about a value of the wrong kind shows an example of the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.config.reference import JOB
from tfdeploy.config.schema import read_keys
from tfdeploy.config.yamlfile import parse_yaml
from tfdeploy.errors import ConfigError


@pytest.mark.parametrize(
    "line, where, hint",
    [
        ("restart: 5", "restart", "restart: {max: 3, backoff: [1s, 60s], wait: 1h}"),
        ("restart: {max: x}", "restart.max", "max: 3"),
        ("env: [A]", "env", "env: "),
        ("data: digits", "data", "data: {digits: ./data/digits}"),
    ],
)
def test_error_shows_an_example(line: str, where: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_keys(parse_yaml(line, Path("job.yaml")), JOB)
    assert raised.value.where == f"job.yaml:1:{where}"
    assert raised.value.next is not None and raised.value.next.startswith(f"write it as in `{hint}")
