"""Test that placeholders such as {data.NAME} in a text are found, checked and replaced, and that
other braces stay as they are.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.errors import UsageError
from tfdeploy.text.placeholders import (
    NAMES,
    check_placeholders,
    fill_placeholders,
    known_placeholders,
    placeholder_names,
)

FILLED = {
    "": "",
    "train.py": "train.py",
    "{job_name}": "<job_name>",
    "--data={data.digits}/x": "--data=<data.digits>/x",
    "{{job_name}}": "{job_name}",
    "{{{job_name}}}": "{<job_name>}",
    '{{"a": {{}}}}': '{"a": {}}',
    "{keep.out/models}": "<keep.out/models>",
}


@pytest.mark.parametrize(("text", "filled"), FILLED.items())
def test_placeholders_are_replaced(text, filled):
    values = {name: f"<{name}>" for name in known_placeholders(["digits"], ["out/models"])}
    assert fill_placeholders(text, values) == filled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{job_name", "unclosed brace"),
        ("a { b", "unclosed brace"),
        ("a } b", "closing brace"),
        ("{job{name}", "unclosed brace"),
        ("{}", "unknown placeholder {}"),
        ("{jobname}", "unknown placeholder {jobname}"),
        ("{data.digit}", "unknown placeholder {data.digit}"),
    ],
)
def test_error_lists_valid_names(text, words):
    with pytest.raises(UsageError) as caught:
        check_placeholders(text, known_placeholders(["digits"], ["checkpoints"]))
    assert words in caught.value.what
    assert repr(text) in caught.value.what
    if "unknown" in words:
        for name in (*NAMES, "data.digits", "keep.checkpoints"):
            assert f"{{{name}}}" in caught.value.next


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ([], "define the data set"),
        (["data"], "did you mean {data.data}? otherwise define the data set"),
        (["train", "test"], "define the data set"),
    ],
)
def test_error_suggests_the_only_data_set(data, hint):
    with pytest.raises(UsageError) as caught:
        check_placeholders("{data.blobs}", known_placeholders(data, ()))
    assert caught.value.next.startswith(hint)


def test_fill_replaces_placeholders():
    assert placeholder_names("{task_index}-{task_index}") == ("task_index", "task_index")
    assert (
        fill_placeholders("{job_name}:{task_index} {{x}}", {"job_name": "ps", "task_index": "0"})
        == "ps:0 {x}"
    )
    with pytest.raises(UsageError):
        fill_placeholders("{num_ps}", {"job_name": "ps"})


@given(st.text())
def test_text_with_doubled_braces_is_unchanged(text):
    assert fill_placeholders(text.replace("{", "{{").replace("}", "}}"), {}) == text


@given(st.lists(st.tuples(st.booleans(), st.text() | st.sampled_from(sorted(NAMES)))))
def test_each_placeholder_is_replaced_separately(parts):
    parts = [(is_name and text in NAMES, text) for is_name, text in parts]
    text = "".join(
        f"{{{part}}}" if is_name else part.replace("{", "{{").replace("}", "}}")
        for is_name, part in parts
    )
    expected = "".join(f"<{part}>" if is_name else part for is_name, part in parts)
    assert fill_placeholders(text, {name: f"<{name}>" for name in NAMES}) == expected


def test_a_data_set_that_the_job_lacks_is_to_be_defined():
    with pytest.raises(UsageError) as caught:
        check_placeholders("--data={data.digits}", ("job_name", "data.wheels"))
    assert "data: {digits: ./digits}" in caught.value.next
