"""Writes objects as YAML for people: programs in them stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.rstrip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Sequence[Any]) -> str:
    """Return the documents of objects, in the order of their fields."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
