"""Test which hosts --limit and --exclude select."""

import pytest

from tfdeploy.errors import UsageError
from tfdeploy.model.inventory import Host, Inventory, select_hosts

NAMES = ("n1", "n2", "gpu01", "gpu02", "gpu10", "ps")
INVENTORY = Inventory(
    tuple(Host(name=name, address=name) for name in NAMES),
    {"ps": ("n1",), "worker": ("n2", "gpu01", "gpu02", "gpu10"), "chief": ("n2",)},
)

CASES = [
    (None, None, "n1 n2 gpu01 gpu02 gpu10 ps"),
    ("n1", None, "n1"),
    ("gpu[01-02]", None, "gpu01 gpu02"),
    ("gpu[01-99]", None, "gpu01 gpu02 gpu10"),
    ("n*, gpu10", None, "n1 n2 gpu10"),
    ("gpu0?", None, "gpu01 gpu02"),
    ("n[2]*", None, "n2"),
    ("g*[01-02]", None, "gpu01 gpu02"),
    ("worker", None, "n2 gpu01 gpu02 gpu10"),
    ("ps", None, "ps"),
    (None, "worker", "n1 ps"),
    ("worker", "n2,gpu*0", "gpu01 gpu02"),
    ("*", "n[1-2],ps", "gpu01 gpu02 gpu10"),
]


@pytest.mark.parametrize(("limit", "exclude", "names"), CASES)
def test_selected_hosts(limit, exclude, names):
    assert [host.name for host in select_hosts(INVENTORY, limit, exclude).hosts] == names.split()


def test_roles_keep_only_selected_hosts():
    assert select_hosts(INVENTORY, "gpu*", None).roles == {
        "ps": (),
        "worker": ("gpu01", "gpu02", "gpu10"),
        "chief": (),
    }


@pytest.mark.parametrize(
    ("limit", "exclude", "message", "next"),
    [
        ("gpu3", None, "'gpu3' matches no host", "gpu"),
        ("n1,x*", None, "'x*' matches no host", "the hosts are"),
        (None, "wroker", "'wroker' matches no host", "did you mean worker?"),
        ("n1", "n1", "no host is selected", "tfdeploy inventory"),
        ("", None, "an empty pattern", "--limit"),
        (None, " , ", "an empty pattern", "--exclude"),
        ("n[1-1000000]", None, "at most 10,000", "smaller"),
        ("n[2-1]", None, "runs backwards", "[1-2]"),
        ("n[!1]", None, "[!1] in 'n[!1]' is not a range", "[01-16]"),
        ("n[13]", None, "matches no host", "the hosts are n[1-2]"),
        ("n[]", None, "[] in 'n[]' is not a range", "[01-16]"),
    ],
)
def test_invalid_selection_is_refused(limit, exclude, message, next):
    with pytest.raises(UsageError) as caught:
        select_hosts(INVENTORY, limit, exclude)
    assert message in caught.value.what
    assert next in caught.value.next
