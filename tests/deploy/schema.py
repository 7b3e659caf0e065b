"""Checks values, as YAML and JSON have them, against descriptions of their types.

A type is written as the models that are generated from OpenAPI write it: "str", "int", "bool", "float", "object"
(anything), "list[TYPE]", "dict(str, TYPE)", or the name of a model.
"""

import datetime
import re


class Model:
    """An object's keys: name -> type, and which are required. `open`: others may stand beside them."""

    def __init__(self, keys, required=(), is_open=False):
        self.keys = keys
        self.required = set(required)
        self.is_open = is_open


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


PLAIN = {
    "str": lambda value: isinstance(value, str),
    "int": _is_integer,
    "bool": lambda value: isinstance(value, bool),
    "float": lambda value: _is_integer(value) or isinstance(value, float),
    "datetime": lambda value: isinstance(value, (str, datetime.datetime)),
    "int-or-string": lambda value: _is_integer(value) or isinstance(value, str),
    "object": lambda value: True,
}


class Checker:
    """`describe`: from a name to its Model, or None. `plain`: further types, from a name to what decides."""

    def __init__(self, describe, plain):
        self._describe = describe
        self._plain = PLAIN | plain

    def errors_of(self, where, value, kind):
        """What is wrong with a value, one line each with the path to it; empty if nothing is."""
        items = re.fullmatch(r"list\[(.+)\]", kind)
        if items:
            if not isinstance(value, list):
                return [f"{where}: a list is expected, not {value!r}"]
            return [error for index, item in enumerate(value)
                    for error in self.errors_of(f"{where}[{index}]", item, items[1])]
        entries = re.fullmatch(r"dict\(str, (.+)\)", kind)
        model = None if entries else self._describe(kind)
        if entries or model:
            if not isinstance(value, dict):
                return [f"{where}: a mapping is expected, not {value!r}"]
            if entries:
                return [error for key, item in value.items()
                        for error in self.errors_of(f"{where}.{key}", item, entries[1])]
            return self._errors_of_object(where, value, kind, model)
        if kind not in self._plain:
            return [f"{where}: the type {kind} is not known"]
        return [] if self._plain[kind](value) else [f"{where}: {kind} is expected, not {value!r}"]

    def _errors_of_object(self, where, value, kind, model):
        errors = [f"{where}: {key} is missing" for key in sorted(model.required) if value.get(key) is None]
        for key, item in value.items():
            if key in model.keys:
                errors += self.errors_of(f"{where}.{key}", item, model.keys[key])
            elif not model.is_open:
                errors.append(f"{where}.{key}: no such key in {kind}")
        return errors
