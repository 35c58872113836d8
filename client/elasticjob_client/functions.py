"""Packs a function and its arguments as files that `run_function.py` runs in a container.

The function is pickled by value, with the values that it closes over. The files include
cloudpickle, so that an image needs only Python, the modules beside the function's that it imports,
and the source of the function, for tracebacks.
"""

from __future__ import annotations

import inspect
import io
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from os import PathLike
from pathlib import Path, PurePath
from types import CodeType
from typing import Any

import msgspec

from elasticjob_client.arguments import check_sequence
from elasticjob_client.errors import ClientError
from elasticjob_client.manifests import Program, script_command
from elasticjob_client.run_function import EXIT_OTHER_PYTHON
from elasticjob_client.scripts import beside, local_modules

MAIN = "main.py"
"""The program that runs the function."""
_NO_FILE = "<dynamic-code>"
"""What cloudpickle writes in place of a file's name from 3.1.3 on."""
_MAX_SOURCE_BYTES = 128 * 1024
"""A larger source is left out; tracebacks then have file and line number only."""


def pack(function: Callable[..., object], arguments: Sequence[object] = ()) -> dict[str, bytes]:
    """Return the files that run a function, by name.

    Raises:
        ClientError: cloudpickle is not installed, or the function is asynchronous or cannot be
            pickled.
    """
    name = getattr(function, "__qualname__", function)
    if inspect.iscoroutinefunction(function):
        raise ClientError(
            f"function {name} is asynchronous, so a call would do nothing; give one that runs it"
        )
    check_sequence("fn_args", arguments, (10,))
    try:
        from cloudpickle import cloudpickle as implementation
    except ModuleNotFoundError as error:
        raise ClientError(
            "to train a function, cloudpickle is needed: pip install 'elasticjob[client]'"
        ) from error
    try:
        with _own_modules_by_value(function):
            pickled = _pickled((function, tuple(arguments)))
    except Exception as error:  # pickling runs the user's code, which may raise any error
        raise ClientError(
            f"function {name} cannot be pickled: {error}; open files, locks and connections "
            "inside of it, or submit a script"
        ) from error
    about = {"python": list(sys.version_info[:2]), "source": _source(function)}
    return _local_modules(function) | {
        MAIN: resources.files("elasticjob_client").joinpath("run_function.py").read_bytes(),
        "function.pickle": pickled,
        "function.json": msgspec.json.encode(about),
        "cloudpickle.py": inspect.getsource(implementation).encode(),
    }


def _pickled(found: object) -> bytes:
    """Return a pickled object whose code keeps the names of its files, for tracebacks."""
    import cloudpickle

    usual = cloudpickle.Pickler.dispatch_table

    def with_file(code: CodeType) -> tuple[object, ...]:
        make, parts = usual[CodeType](code)
        return make, tuple(code.co_filename if each == _NO_FILE else each for each in parts)

    own = {"dispatch_table": usual.new_child({CodeType: with_file})}
    target = io.BytesIO()
    type("Pickler", (cloudpickle.Pickler,), own)(target).dump(found)
    return target.getvalue()


def program(
    function: Callable[..., object],
    arguments: Sequence[object] = (),
    files: Sequence[str | PathLike[str]] = (),
) -> Program:
    """Return the program that calls a function, beside these files and folders.

    Raises the errors of `pack` and `beside`.
    """
    other_python = {"action": "FailJob", "exitCodes": [EXIT_OTHER_PYTHON]}
    packed = pack(function, arguments)
    contents = beside(files, packed)
    return Program(function_name(function), script_command(MAIN), contents, [other_python])


def function_name(function: Callable[..., object]) -> str:
    """Return the name of a function, after which its job is named."""
    name: str = getattr(function, "__name__", "")
    return PurePath(name).name if name.isidentifier() else "function"


def _local_modules(function: Any) -> dict[str, bytes]:
    """Return the modules that the function's own module imports, unless that is installed."""
    module = sys.modules.get(getattr(inspect.unwrap(function), "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or _is_installed(file):
        return {}
    path = Path(file)
    return local_modules(path, path.parents[module.__name__.count(".")])


@contextmanager
def _own_modules_by_value(function: Any) -> Iterator[None]:
    """Pickle the modules of the function's package by value, unless the package is installed.

    Images have installed packages, but not the modules of the user.
    """
    import cloudpickle

    module = sys.modules.get(getattr(inspect.unwrap(function), "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or _is_installed(file):
        yield
        return
    package = sys.modules.get(module.__name__.partition(".")[0], module)
    chosen = package if module.__name__.startswith(f"{package.__name__}.") else module
    cloudpickle.register_pickle_by_value(chosen)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(chosen)


def _is_installed(file: str) -> bool:
    paths = sysconfig.get_paths()
    return any(
        PurePath(file).is_relative_to(paths[name])
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )


def _source(function: Any) -> dict[str, str]:
    """Return the text of the file that defines a function, by the file's name in its code."""
    function = inspect.unwrap(function)
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError):  # for example, a function that was typed into an interpreter
        return {}
    text = "".join(lines)
    code = getattr(function, "__code__", None)  # a class has no code
    if code is None or len(text.encode()) > _MAX_SOURCE_BYTES:
        return {}
    return {code.co_filename: text}
