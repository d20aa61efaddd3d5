"""Test that tfdeploy either reads a file as YAML or refuses it with one clear error."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdeploy.config import yamlfile
from tfdeploy.config.yamlfile import read_yaml
from tfdeploy.errors import ConfigError
from tfdeploy.machine.ownership import find_tamper_risk


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(content):
        Path("x.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_yaml(Path("x.yaml"))

    return read


def tree(node):
    if node.kind == "mapping":
        return {key: tree(child) for key, child in node.keys.items()}
    return [tree(item) for item in node.items] if node.kind == "list" else node.text


@pytest.mark.parametrize(
    "content",
    [b"a: 1\nb:\n  c: x\n", b"\xef\xbb\xbfa: 1\nb:\n  c: x\n", b"a: 1\r\nb:\r\n  c: x\r\n"],
)
def test_bom_and_crlf_are_accepted(read, content):
    root = read(content)
    assert tree(root) == {"a": "1", "b": {"c": "x"}}
    assert root.keys["b"].keys["c"].where == "x.yaml:3:b.c"


def test_scalars_keep_their_text_and_kind(read):
    root = read("a: 0.10\nb: yes\nc: 'yes'\nd:\ne: ~\nf: 1:30\ng: 2026-01-01\nh: 0x10\n")
    kinds = {key: (node.kind, node.text) for key, node in root.keys.items()}
    assert kinds == {
        "a": ("number", "0.10"),
        "b": ("true or false", "yes"),
        "c": ("text", "yes"),
        "d": ("nothing", ""),
        "e": ("nothing", "~"),
        "f": ("text", "1:30"),
        "g": ("text", "2026-01-01"),
        "h": ("text", "0x10"),
    }


def test_device_is_never_to_be_moved_or_changed() -> None:
    with pytest.raises(ConfigError, match="is empty") as raised:
        read_yaml(Path("/dev/null"))
    assert raised.value.next == "name a file"
    assert find_tamper_risk(Path("/dev/null")) is None


FAULTS = {
    "empty": (b"", "is empty", "x.yaml", "tfdeploy init"),
    "blank": (b" \n\n", "is empty", "x.yaml", "tfdeploy init"),
    "comments": (b"# only\n# comments\n", "only comments", "x.yaml", "remove the # "),
    "null": (b"---\n~\n", "is empty", "x.yaml", "`mv x.yaml x.yaml.old`"),
    "latin-1": (b"a: 1\nb: \xe9\n", "not UTF-8", "x.yaml:2", "UTF-8"),
    "utf-16": ("a: 1\n".encode("utf-16"), "UTF-16, not UTF-8", "x.yaml:1", "iconv"),
    "tab": (b"a:\n\tb: 1\n", "bad YAML", "x.yaml:2", "no tabs"),
    "regular expression": (b'a: "\\d"\n', "bad YAML", "x.yaml:1", "single quotes"),
    "two mappings": (b"a:\n  b: 1\na:\n  c: 1\n", "given twice", "x.yaml:3", "of line 3 to line 1"),
    "two equal mappings": (b"a: {b: 1}\na: {b: 1}\n", "given twice", "x.yaml:2", "remove one"),
    "two lists": (b"a: [b]\na: [c]\n", "given twice", "x.yaml:2", "remove one"),
    "open quote": (b"a: 1\nb: 'x\n", "bad YAML", "x.yaml:", "quotes"),
    "open bracket": (b"a: [1, 2\nb: 1\n", "bad YAML", "x.yaml:2", "brackets"),
    "open at the end": (b"a:\n  b: [n1\n\n", "bad YAML", "x.yaml:2", "brackets"),
    "no blank after a colon": (
        b"name: a\nmode:plain\ncode: .\n",
        "bad YAML",
        "x.yaml:2",
        "a blank after the colon in 'mode:plain'",
    ),
    "nothing but a key without a blank": (
        b"mode:plain\n",
        "a mapping",
        "x.yaml:1",
        "a blank after",
    ),
    "a time is not a key": (b"a: 1\nurl://x\nb: 1\n", "bad YAML", "x.yaml:3", "check quotes"),
    "colon in text": (b"a: b: c\n", "bad YAML", "x.yaml:1", "quotes"),
    "NUL": (b"a: 1\nb: \x00\n", "bad YAML", "x.yaml:2", None),
    "two documents": (b"a: 1\n---\nb: 1\n", "another document", "x.yaml:2", "one document"),
    "unknown alias": (b"a: *b\n", "undefined alias *b", "x.yaml:1", "&name"),
    "inside itself": (b"a: &a [*a]\n", "undefined alias *a", "x.yaml:1", "&name"),
    "tag": (b"a: !!python/object:os.system x\n", "means nothing here", "x.yaml:1", "quotes"),
    "own tag": (b"a: !x y\n", "means nothing here", "x.yaml:1", "quotes"),
    "list as key": (b"? [a]\n: b\n", "a key must be a word", "x.yaml:1", "quotes"),
    "merge of text": (b"<<: x\n", "takes mappings", "x.yaml:1", None),
    "line ends of old": (b"a: 1\rb: [\r", "bad YAML", "x.yaml:2", None),
    "NUL behind letters": (
        "a: \u00e9\u00e9\u00e9\nb: \0\nc: 1\nd: 1\n".encode(),
        "bad YAML",
        "x.yaml:2",
        None,
    ),
    "list of lists": (b"- [a]\n", "must be a mapping", "x.yaml:1", "tfdeploy docs"),
    "alias of a page": (b"a: *" + b"x" * 50_000 + b"\n", "undefined alias", "x.yaml:1", "&name"),
    "deep": (b"a: " + b"[" * 200_000, "levels deep", "x.yaml:1", "tfdeploy docs"),
    "deep block": (b"- " * 20_000 + b"x\n", "levels deep", "x.yaml:1", "tfdeploy docs"),
}


@pytest.mark.parametrize(("content", "message", "where", "next"), FAULTS.values(), ids=FAULTS)
def test_faults(read, content, message, where, next):
    with pytest.raises(ConfigError) as caught:
        read(content)
    assert message in caught.value.what
    assert caught.value.where.startswith(where)
    assert next is None or next in (caught.value.next or "")
    assert len(caught.value.what) < 1100


def test_missing_end_is_reported_in_last_line(read):
    assert read("?").keys[""].location == "x.yaml:1"
    assert read("a:\n- b\n-\n").keys["a"].items[1].location == "x.yaml:3"


def test_nested_anchors_are_bounded(read):
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    assert read(f"l0: &l0 [x, x]\n{levels}\n").keys["l29"].kind == "list"


def test_merges_are_bounded(read):
    many = "".join(f"  k{n}: 1\n" for n in range(2000))
    with pytest.raises(ConfigError, match="the merge keys <<: add more than"):
        read("a: &a\n" + many + "".join(f"b{n}:\n  <<: *a\n" for n in range(60)))


def test_file_with_too_many_values_is_refused(read, monkeypatch):
    monkeypatch.setattr(yamlfile, "MAX_NODES", 1000)
    assert read("a: [" + "x," * 900 + "]").keys["a"].kind == "list"
    with pytest.raises(ConfigError, match="more than 1,000 words and values") as caught:
        read("a:\n- " + "x\n- " * 2000)
    assert caught.value.where == "x.yaml:999"
    with pytest.raises(ConfigError, match="more than 1,000 words and values"):
        read("a: &a x\nb: [" + "*a," * 1000 + "]")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a: 1\nb: x\n", {"a": 1, "b": 2}),
        (
            "all:\n  hosts:\n    n1:\n  "
            "    port: 1\n", {"all": 1, "all.hosts": 2, "all.hosts.n1": 3, "all.hosts.n1.port": 4}),
        ("# one\na:\n\n  # two\n\n  b:\n  # three\n    c: 1\n", {"a": 2, "a.b": 6, "a.b.c": 8}),
        (
            "a:\n- x\n-\n  y\nb: "
            "[\n 1,\n 2]\n", {"a": 1, "a[0]": 2, "a[1]": 4, "b": 5, "b[0]": 6, "b[1]": 7}),
        (
            "a:\n  - b:\n      c: 1\n    "
            "d: 2\n  - b: 3\n", {"a[0].b": 2, "a[0].b.c": 3, "a[0].d": 4, "a[1].b": 5}),
        (
            "a: {\n b: 1,\n c:\n  "
            "[x,\n   y]}\n", {"a": 1, "a.b": 2, "a.c": 3, "a.c[0]": 4, "a.c[1]": 5}),
        (
            "a: |\n  text\n  text\nb: >-\n\n  "
            "text\nc:\n  'x\n  y'\nd: 1\n", {"a": 1, "b": 4, "c": 7, "d": 10}),
        (
            "a: &x\n  b: 1\nc:\n  &y\n  d: "
            "1\ne:\n  <<: *x\n  f:\n    *y\n", {"a.b": 2, "c": 3, "c.d": 5, "e": 6, "e.f": 3}),
        ("a: &x 1\n\nb:\n  *x\n", {"a": 1, "b": 3}),
        ("? a\n:\n  b: 1\n'c d':\n  e:\n", {"a": 1, "a.b": 3, "c d": 4, "c d.e": 5}),
        ("a:\r\n  b:\r\n    c: 1\r\n", {"a": 1, "a.b": 2, "a.b.c": 3}),
    ],
)  # fmt: skip
def test_error_names_line_of_key(read, content, lines):
    root = read(content)
    assert {path: at(root, path).line for path in lines} == lines


def at(node, path):
    for step in re.findall(r"\[(\d+)\]|([^.\[\]]+)", path):
        node = node.items[int(step[0])] if step[0] else node.keys[step[1]]
    return node


def test_own_keys_override_merged_keys(read):
    root = read("a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}\nc: {<<: [*a, {z: 3}]}\n")
    assert tree(root.keys["b"]) == {"x": "2", "y": "1"}
    assert tree(root.keys["c"]) == {"x": "1", "y": "1", "z": "3"}


def test_alias_has_line_where_it_is_used(read):
    root = read("a: &w word\nb: *w\n")
    assert (root.keys["b"].where, root.keys["b"].text) == ("x.yaml:2:b", "word")


def test_missing_folder_huge_and_unreadable_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no such file") as caught:
        read_yaml(Path("nowhere.yaml"))
    assert (caught.value.where, "tfdeploy init" in caught.value.next) == ("nowhere.yaml", True)
    with pytest.raises(ConfigError, match="a folder, not a file"):
        read_yaml(tmp_path)
    with open("huge.yaml", "wb") as file:  # noqa: PTH123 - a sparse file
        file.truncate(1 << 40)
    for endless in ("huge.yaml", "/dev/zero"):
        with pytest.raises(ConfigError, match="too large for an inventory"):
            read_yaml(Path(endless))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(Path("a\0b"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200) | st.text("ab:-[]{}&*!|>'\"#%@`, \n\t?<~", max_size=80).map(str.encode)
)
def test_random_content_is_read_or_refused(read, content):
    try:
        read(content)
    except ConfigError as error:
        assert error.where.startswith("x.yaml")
