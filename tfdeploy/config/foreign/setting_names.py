"""Rewrites advice that names settings of hosts: if the inventory has another format than tfdeploy's
own, each setting gets the name that this format uses."""

from __future__ import annotations

import re
from pathlib import Path

from tfdeploy.config.foreign.recognise import read_inventory_tree
from tfdeploy.config.reference import HOST
from tfdeploy.config.yamlfile import shown_path
from tfdeploy.text.nexts import CONVERT_INVENTORY

# Matches a setting in the text of a message, such as `port:` or `port: 22`.
SETTING = re.compile(rf"`({'|'.join(key.name for key in HOST)}):[^`]*`")


def translate_settings(text: str, path: Path) -> str:
    """Return advice such as "set `port:`" with the names that the format of the inventory `path`
    uses.

    If the format lacks a setting, the result also says how to convert the file. Raises ConfigError.
    """
    names = read_inventory_tree(path).setting_names
    if names is None:
        return text
    lacking = [each[0] for each in SETTING.finditer(text) if each[1] not in names]
    for key, name in names.items():
        text = text.replace(f"`{key}:`", f"`{name}`").replace(f"`{key}: ", f"`{name}=")
    if lacking:
        text += f"; {lacking[0]} cannot be set in {shown_path(path)}: first {CONVERT_INVENTORY}"
    return text
