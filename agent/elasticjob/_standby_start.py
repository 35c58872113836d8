"""Starts _standby.py in the interpreter of the training program. Any Python, also 2.7, can run it.

The module `__main__` becomes that of the program, so this file leaves no names behind.
"""

import os
import sys

del sys.path[0]  # this folder: its modules would hide others
if sys.version_info < (3, 10) or sys.implementation.name != "cpython":
    for _number in sys.argv[1].split(",")[:3]:
        os.close(int(_number))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 (no shell is wanted)

import importlib.util  # noqa: E402 (not in Python 2)

_spec = importlib.util.spec_from_file_location(
    "_elasticjob_standby",
    os.path.join(os.path.dirname(__file__), "_standby.py"),  # noqa: PTH118, PTH120
)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
_module.run(sys.argv[1], sys.argv[2:])
