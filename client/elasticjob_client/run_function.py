"""Runs a function that was packed by functions.py.

It is copied into the container, which has no other file of this package. It runs with Python 3.8
and newer, and imports only the standard library.
"""

import importlib.util
import json
import linecache
import pickle
import sys
import traceback
from pathlib import Path

EXIT_OTHER_PYTHON = 202
"""Exit code for a wrong Python version; byte code depends on it, so all members would fail."""


def main() -> int:
    """Run the function; return the process's exit code."""
    here = Path(__file__).resolve().parent
    about = json.loads((here / "function.json").read_text())
    if list(sys.version_info[:2]) != about["python"]:
        theirs = ".".join(map(str, about["python"]))
        ours = ".".join(map(str, sys.version_info[:2]))
        problem = f"the function comes from Python {theirs}, and this image has Python {ours}"
        remedy = f"use an image with Python {theirs}, or submit a script"
        print(f"{problem}: {remedy}", file=sys.stderr)  # noqa: T201
        return EXIT_OTHER_PYTHON
    for name, text in about["source"].items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    _provide_cloudpickle(here / "cloudpickle.py")
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))  # the modules that the function's module imports
    # The default hook reads source lines from files that do not exist here.
    sys.excepthook = traceback.print_exception
    function, arguments = pickle.loads((here / "function.pickle").read_bytes())  # noqa: S301 - the user's own
    function(*arguments)
    return 0


def _provide_cloudpickle(path: Path) -> None:
    """Import the version of cloudpickle that has pickled the function."""
    spec = importlib.util.spec_from_file_location("cloudpickle.cloudpickle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cloudpickle"] = sys.modules[spec.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    raise SystemExit(main())
