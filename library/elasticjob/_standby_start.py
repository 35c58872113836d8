"""Starts the package _standby in the interpreter of the training program.

Any Python, also 2.7, can run this file. The module `__main__` becomes that of the
program, so it leaves no names behind.
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
    os.path.join(os.path.dirname(__file__), "_standby", "__init__.py"),  # noqa: PTH118, PTH120
)
assert _spec is not None
assert _spec.loader is not None
sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[_spec.name])
importlib.import_module("_elasticjob_standby.process").run(sys.argv[1], sys.argv[2:])
