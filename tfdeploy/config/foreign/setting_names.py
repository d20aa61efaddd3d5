"""Words advice about settings of hosts as the format of the inventory in use names them."""

from __future__ import annotations

import re
from pathlib import Path

from tfdeploy.config.foreign.recognise import read_inventory_tree
from tfdeploy.config.reference import HOST
from tfdeploy.config.yamlfile import shown_path
from tfdeploy.text.nexts import CONVERT_INVENTORY

# A setting in the text of a message: `port:` or `port: 22`.
SETTING = re.compile(rf"`({'|'.join(key.name for key in HOST)}):[^`]*`")


def translate_settings(text: str, path: Path) -> str:
    """Return advice such as "set `port:`" with the names that the inventory's format uses.

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
