"""Test the text that describes differences between the Python environments of hosts."""

from __future__ import annotations

from tfdeploy.operations.setup import Environment, describe_difference, find_version_differences


def test_differences_are_named_with_python_first() -> None:
    def one(python: str, **packages: str) -> Environment:
        return Environment(folder="/w/.envs/x", python_version=python, by="pip", packages=packages)

    same = {"n1": one("3.11.2", numpy="2.0"), "n2": one("3.11.2", numpy="2.0")}
    assert find_version_differences(same) == {} and find_version_differences({}) == {}
    differing = find_version_differences(
        {**same, "n3": one("3.9.1", numpy="1.26", zipp="3.0"), "n4": one("3.9.1", numpy="2.0")}
    )
    assert [describe_difference(*difference) for difference in differing.items()] == [
        "Python: 3.11.2 on n[1-2], 3.9.1 on n[3-4]",
        "numpy: 2.0 on n[1-2,4], 1.26 on n3",
        "zipp: none on n[1-2,4], 3.0 on n3",
    ]
