"""Supply HParams, an object with named values of a model, which can be set from a text such as
"rate=0.1,layers=[64,32]"."""

import ast
import json


class HParams(object):
    """Named values as attributes. A name keeps the type of the value with which it was added."""

    def __init__(self, **kwargs):
        self._names = []
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        if hasattr(self, name):
            raise ValueError("Hyperparameter name is reserved: %s" % name)
        self._names.append(name)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        if name not in self._names:
            raise KeyError("Unknown hyperparameter: %s" % name)
        setattr(self, name, _convert_to_type_of(getattr(self, name), value, name))

    def parse(self, values):
        """Set values from a text, "name=value,name=[value,value],name[index]=value", and return the
        object itself. The words `true` and `false` are booleans. Raises ValueError."""
        for name, text in _parse_assignments(values):
            plain, _, index = name.rstrip("]").partition("[")
            if plain not in self._names:
                raise ValueError("Unknown hyperparameter: %s" % plain)
            if index:
                items = getattr(self, plain)
                items[int(index)] = _convert_to_type_of(
                    items[int(index)], _parse_value(text), plain
                )
            else:
                self.set_hparam(plain, _parse_value(text))
        return self

    def override_from_dict(self, values_dict):
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json):
        return self.override_from_dict(json.loads(values_json))

    def values(self):
        return {name: getattr(self, name) for name in self._names}

    def to_json(self, indent=None, separators=None, sort_keys=False):
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key, default=None):
        return getattr(self, key) if key in self._names else default

    def del_hparam(self, name):
        if name in self._names:
            self._names.remove(name)
            delattr(self, name)

    def __contains__(self, key):
        return key in self._names

    def __repr__(self):
        return "HParams(%s)" % ", ".join("%s=%r" % each for each in sorted(self.values().items()))


def _parse_assignments(text):
    """Yield (name, text of the value) of each assignment. A comma within brackets is part of the
    value."""
    depth, start = 0, 0
    for at, char in enumerate(text + ","):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            name, equals, value = text[start:at].partition("=")
            start = at + 1
            if equals:
                yield name.strip(), value.strip()
            elif name.strip():
                raise ValueError("Could not parse hparam: %s" % name)


def _parse_value(text):
    if text.startswith("["):
        return [_parse_value(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _convert_to_type_of(old, value, name):
    if isinstance(old, (list, tuple)):
        values = value if isinstance(value, (list, tuple)) else [value]
        return [_convert_to_type_of(old[0], each, name) if old else each for each in values]
    if old is None or isinstance(value, type(old)):
        return value
    if isinstance(old, (int, float)) and isinstance(value, str):
        raise ValueError("Could not parse hparam %s as %s: %r" % (name, type(old).__name__, value))
    if isinstance(old, int) and isinstance(value, float) and value != int(value):
        raise ValueError(
            "Could not cast hparam %s of type %s from value %r" % (name, type(old).__name__, value)
        )
    return type(old)(value)
