"""Placeholders are cut out of texts, checked and filled in; plain braces survive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.errors import UsageError
from tfdeploy.model.placeholders import NAMES, Placeholder, check, fill, known_names, names, parse

PARSED = {
    "": (),
    "train.py": ("train.py",),
    "{job_name}": (Placeholder("job_name"),),
    "--data={data.digits}/x": ("--data=", Placeholder("data.digits"), "/x"),
    "{{job_name}}": ("{job_name}",),
    "{{{job_name}}}": ("{", Placeholder("job_name"), "}"),
    '{{"a": {{}}}}': ('{"a": {}}',),
    "{keep.out/models}": (Placeholder("keep.out/models"),),
}


@pytest.mark.parametrize(("text", "parts"), PARSED.items())
def test_parse(text, parts):
    assert parse(text) == parts


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
def test_a_fault_is_named_with_the_names_there_are(text, words):
    with pytest.raises(UsageError) as caught:
        check(text, known_names(["digits"], ["checkpoints"]))
    assert words in caught.value.what
    assert repr(text) in caught.value.what
    if "unknown" in words:
        for name in (*NAMES, "data.digits", "keep.checkpoints"):
            assert f"{{{name}}}" in caught.value.next


def test_fill():
    assert names("{task_index}-{task_index}") == ("task_index", "task_index")
    assert fill("{job_name}:{task_index} {{x}}", {"job_name": "ps", "task_index": "0"}) == "ps:0 {x}"
    with pytest.raises(UsageError):
        fill("{num_ps}", {"job_name": "ps"})


@given(st.text())
def test_any_text_survives_once_its_braces_are_doubled(text):
    assert fill(text.replace("{", "{{").replace("}", "}}"), {}) == text


@given(st.lists(st.one_of(st.text(), st.sampled_from(sorted(NAMES)).map(Placeholder))))
def test_filling_is_piecewise(parts):
    text = "".join(
        f"{{{part.name}}}" if isinstance(part, Placeholder) else part.replace("{", "{{").replace("}", "}}") for part in parts
    )
    values = {name: f"<{name}>" for name in NAMES}
    expected = "".join(f"<{part.name}>" if isinstance(part, Placeholder) else part for part in parts)
    assert fill(text, values) == expected
