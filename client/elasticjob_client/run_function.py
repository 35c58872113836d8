"""Runs a function that was packed by functions.py.

A file beside it in a container, for Python 3.8 and newer.
It imports nothing but the standard library, as nothing else of this package is there.
"""

import importlib.util
import json
import linecache
import pickle
import sys
import traceback
from pathlib import Path

EXIT_OTHER_PYTHON = 202
"""A function's byte code is of one Python version, so another member would fail, too."""


def main() -> int:
    """Run the function; return the process's exit code."""
    here = Path(__file__).resolve().parent
    about = json.loads((here / "function.json").read_text())
    if list(sys.version_info[:2]) != about["python"]:
        theirs, ours = (
            ".".join(map(str, each)) for each in (about["python"], sys.version_info[:2])
        )
        print(  # noqa: T201
            f"the function comes from Python {theirs}, and this image has Python {ours}: use an image with Python "
            f"{theirs}, or submit a script",
            file=sys.stderr,
        )
        return EXIT_OTHER_PYTHON
    for name, text in about["source"].items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    _provide_cloudpickle(here / "cloudpickle.py")
    sys.excepthook = (
        traceback.print_exception
    )  # the usual one reads lines from the files, which are not here
    function, arguments = pickle.loads((here / "function.pickle").read_bytes())  # noqa: S301 - the user's own
    function(*arguments)
    return 0


def _provide_cloudpickle(path: Path) -> None:
    """Make the version that has pickled the function the one that is imported."""
    spec = importlib.util.spec_from_file_location("cloudpickle.cloudpickle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cloudpickle"] = sys.modules[spec.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    raise SystemExit(main())
