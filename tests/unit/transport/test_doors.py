"""What is made for one host must not be shared with the thread of another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tfdeploy.transport.doors import _connection
from tfdeploy.transport.target import Target


def test_every_connection_has_settings_of_its_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: _connection(Target(hostname=f"10.0.0.{n}", port=22, user="ml"), f"n{n}"), range(1, 33)))
    assert len({id(one.config._config) for one in made}) == 32
    assert all(one.authentication.strategy_class is None for one in made)
