"""Test how host keys are shown as text. Both fingerprints are shown in full. Control characters in
names from hosts are removed.
"""

from __future__ import annotations

from tfdeploy.model.output.rows import KnownKeyRow, TrustRow
from tfdeploy.ui import host_keys

OLD, NEW = "SHA256:" + "o" * 43, "SHA256:" + "n" * 43


def entry(
    place: str, *, marker: str | None = None, writable: bool = True, fingerprint: str = OLD
) -> KnownKeyRow:
    return {
        "keytype": "ssh-rsa",
        "fingerprint": fingerprint,
        "place": place,
        "marker": marker,
        "writable": writable,
    }


def row(state: str, *entries: KnownKeyRow, error: str | None = None) -> TrustRow:
    return {
        "host": "n1",
        "state": state,
        "fingerprint": None if error else NEW,
        "keytype": None if error else "ssh-ed25519",
        "on_record": list(entries),
        "error": error,
    }


def test_both_fingerprints_are_complete_and_aligned() -> None:
    first, on_record, shown = host_keys.renewal_lines(row("changed", entry("/k:2")))
    assert first == "[n1] its key has changed"
    assert on_record.split() == ["on", "record", "ssh-rsa", OLD, "/k:2"]
    assert shown.split() == ["shown", "now", "ssh-ed25519", NEW]
    assert on_record.index(OLD) == shown.index(NEW)


def test_sentence_has_both_fingerprints() -> None:
    assert (
        host_keys.describe_key_change(row("changed", entry("/k:2"), entry("/k:3")))
        == f"the host key of n1 has changed from {OLD} to {NEW}"
    )


def test_remaining_old_key_is_named_and_new_key_is_not() -> None:
    changed_row = row(
        "changed",
        entry("/k:2"),
        entry("/g:1", writable=False),
        entry("/g:2", writable=False, fingerprint=NEW),
    )
    assert host_keys.remaining_old_places(changed_row) == ["/g:1"]
    assert "  /g:1 keeps the old key: tfdeploy does not write that file" in host_keys.renewal_lines(
        changed_row
    )


def test_reason_is_given_if_key_is_not_renewed() -> None:
    line_by_state = {state: host_keys.renewal_lines(row(state))[0] for state in ("known", "new")}
    assert (
        "nothing to replace" in line_by_state["known"]
        and "tfdeploy trust --limit n1" in line_by_state["new"]
    )
    assert host_keys.renewal_lines(row("unreachable", error="no route")) == ["[n1] no route"]
    revoked = host_keys.renewal_lines(row("revoked", entry("/k:7", marker="@revoked")))
    assert revoked[0] == "[n1] the key is marked as revoked at /k:7"


def test_certificate_authority_is_named_if_no_key_is_recorded() -> None:
    assert "/k:1 has a @cert-authority" in host_keys.describe_state(
        row("new", entry("/k:1", marker="@cert-authority"))
    )
    assert (
        host_keys.describe_state(
            row("known", entry("/k:1", marker="@cert-authority"), entry("/k:2"))
        )
        == ""
    )


def test_escapes_in_names_and_errors_are_sanitised() -> None:
    hostile = "\x1b]0;x\x07\x1b[2K\r\u202e/k"
    lines = host_keys.renewal_lines(row("changed", entry(hostile, writable=False)))
    lines += host_keys.renewal_lines(row("unreachable", error=hostile))
    assert all(line.isprintable() and "\u202e" not in line for line in lines)
