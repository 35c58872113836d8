"""Says where modules come from, without running code of them."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from typing import Any

_SITES = ("/site-packages/", "/dist-packages/")


def attributes(module: Any) -> dict[str, Any]:
    """Return a module's attributes, without running code of the module."""
    try:
        attributes: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return attributes


def origin(module: Any) -> str:
    """Return the file of a module; "" if it has none."""
    spec = attributes(module).get("__spec__")
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) and os.sep in origin else ""


def is_installed(package: str) -> bool:
    """Return whether a package is in site-packages, so not one of the program's own."""
    if package in sys.stdlib_module_names:
        return False
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    return all(is_third_party(f"{place}/") for place in places)


def is_third_party(origin: str) -> bool:
    return any(site in origin for site in _SITES)
