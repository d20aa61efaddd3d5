"""Format host keys: the key that a host presents, and the keys on record. A fingerprint is never
cut, because a part of a fingerprint proves nothing."""

from __future__ import annotations

from tfdeploy.model.output.rows import KnownKeyRow, TrustRow
from tfdeploy.ui.sanitise import clean


def describe_state(row: TrustRow) -> str:
    """Return the remark that the table shows beside the fingerprint of a host; "" if there is
    nothing to say."""
    if row["error"]:
        return row["error"]
    places = ", ".join(each["place"] for each in recorded_host_keys(row))
    if row["state"] == "changed":
        return (
            f"another key is on record at {places}: if the host really has a new key, "
            f"`tfdeploy trust --renew {row['host']}`"
        )
    if row["state"] == "revoked":
        return "the key is marked as revoked at " + ", ".join(_places_with_marker(row, "@revoked"))
    if row["state"] == "new" and (authorities := _places_with_marker(row, "@cert-authority")):
        return (
            f"{authorities[0]} has a @cert-authority line for this host, but tfdeploy checks no "
            f"host "
            "certificates"
        )
    return ""


def describe_key_change(row: TrustRow) -> str:
    """Return a sentence with the old and the new fingerprint of a host whose key has changed."""
    old = ", ".join(dict.fromkeys(each["fingerprint"] for each in recorded_host_keys(row)))
    return f"the host key of {row['host']} has changed from {old} to {row['fingerprint']}"


def recorded_host_keys(row: TrustRow) -> list[KnownKeyRow]:
    """Return the recorded keys of the host itself, without revoked keys and without keys of
    certificate authorities."""
    return [each for each in row["on_record"] if each["marker"] is None]


def remaining_old_places(row: TrustRow) -> list[str]:
    """Return the locations of the old keys that remain after a renewal, because tfdeploy does not
    write the files that contain them."""
    return [
        each["place"]
        for each in recorded_host_keys(row)
        if not each["writable"] and each["fingerprint"] != row["fingerprint"]
    ]


def renewal_lines(row: TrustRow) -> list[str]:
    """Return the lines about the renewal of a host's key: the result, the old and new fingerprints
    one below the other, and the files that keep an old key."""
    pairs = [
        ("on record", each["keytype"], each["fingerprint"], f"  {each['place']}")
        for each in recorded_host_keys(row)
    ]
    if row["fingerprint"]:
        pairs.append(("shown now", row["keytype"] or "", row["fingerprint"], ""))
    widest = max((len(kind) for _, kind, _, _ in pairs), default=0)
    lines = [f"  {what}  {kind:{widest}}  {mark}{location}" for what, kind, mark, location in pairs]
    if row["state"] == "changed":
        lines += [
            f"  {location} keeps the old key: tfdeploy does not write that file"
            for location in remaining_old_places(row)
        ]
    verdict = {
        "known": "its key is on record: nothing to replace",
        "new": f"no key is on record: `tfdeploy trust --limit {row['host']}` records this key",
    }.get(row["state"], describe_state(row) if row["state"] != "changed" else "its key has changed")
    return [clean(line) for line in (f"[{row['host']}] {verdict}", *lines)]


def _places_with_marker(row: TrustRow, marker: str) -> list[str]:
    return [each["place"] for each in row["on_record"] if each["marker"] == marker]
