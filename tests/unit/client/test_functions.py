"""A function is packed here and runs elsewhere: in a process that has nothing of this test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from elasticjob_client.errors import ClientError
from elasticjob_client.functions import MAIN, function_name, pack
from elasticjob_client.run_function import EXIT_OTHER_PYTHON

from tests.support.programs import ran

OFFSET = 40


def helper(number: int) -> int:
    return number + OFFSET


def fails() -> None:
    raise ValueError("no luck")


def run(files: dict[str, bytes], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run packed files with the standard library only."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return ran(sys.executable, "-I", "-S", folder / MAIN, cwd=folder)


def test_a_function_runs_with_its_arguments_and_all_that_it_names(tmp_path: Path) -> None:
    word = "closed over"

    def function(numbers: Sequence[int], show: Callable[[int], str]) -> None:
        print(word, [show(helper(number)) for number in numbers])

    done = run(pack(function, ([1, 2], lambda number: f"<{number}>")), tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("closed over ['<41>', '<42>']\n", "", 0)


def test_modules_beside_the_script_of_a_function_come_with_it(tmp_path: Path) -> None:
    here = tmp_path / "here"
    there = tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "helper.py").write_text("from deeper import WORD\n")
    (here / "deeper.py").write_text("WORD = 'deep'\n")
    (here / "other.py").write_text("raise ValueError\n")
    (here / "script.py").write_text(
        "import json, pathlib, sys\n"
        "from elasticjob_client.functions import pack\n"
        "import helper\n"
        "def train():\n"
        "    import deeper\n"
        "    print(helper.WORD, deeper.WORD)\n"
        "for name, content in pack(train).items():\n"
        "    pathlib.Path(sys.argv[1], name).write_bytes(content)\n"
    )
    assert ran(sys.executable, here / "script.py", there).returncode == 0
    assert "other.py" not in {each.name for each in there.iterdir()}
    files = {each.name: each.read_bytes() for each in there.iterdir()}
    assert run(files, there).stdout == "deep deep\n"


def test_a_traceback_shows_the_lines_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("def train():\n    wrong = 1\n    raise ValueError(wrong)\n")
    namespace: dict[str, Callable[[], None]] = {}
    exec(compile(source.read_text(), str(source), "exec"), namespace)
    files = pack(namespace["train"])
    source.unlink()
    done = run(files, tmp_path)
    assert done.returncode == 1
    assert f'File "{source}", line 3, in train\n    raise ValueError(wrong)\n' in done.stderr
    assert done.stderr.endswith("ValueError: 1\n")


@pytest.mark.guarantee("submitted-files-reach-pods")
def test_another_python_is_named_and_ends_the_job_for_good(tmp_path: Path) -> None:
    files = pack(fails)
    about = json.loads(files["function.json"])
    files["function.json"] = json.dumps({**about, "python": [3, 8]}).encode()
    done = run(files, tmp_path)
    present = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == EXIT_OTHER_PYTHON
    assert done.stderr == (
        f"the function comes from Python 3.8, and this image has Python {present}: "
        "use an image with Python 3.8, or "
        "submit a script\n"
    )


def test_what_cannot_be_pickled_is_refused_with_its_name_and_the_remedy() -> None:
    lock = threading.Lock()

    def locked() -> None:
        lock.acquire()

    with pytest.raises(
        ClientError, match=r"locked cannot be pickled: .*lock.*; open files, locks .* inside of it"
    ):
        pack(locked)


def test_a_module_of_the_user_goes_along_and_an_installed_one_does_not(tmp_path: Path) -> None:
    module = ModuleType("own_module")
    module.__file__ = str(tmp_path / "own_module.py")
    exec("def train():\n    print('own')\n", module.__dict__)
    sys.modules["own_module"] = module
    try:
        assert run(pack(module.train), tmp_path).stdout == "own\n"
    finally:
        del sys.modules["own_module"]
    assert len(pack(json.dumps)["function.pickle"]) < 200


def test_a_job_is_named_after_the_function() -> None:
    assert function_name(helper) == "helper"
    assert function_name(lambda: None) == "function"


def test_a_target_that_cannot_be_called_with_its_arguments_is_refused() -> None:
    async def train() -> None: ...

    with pytest.raises(ClientError, match="is asynchronous"):
        pack(train)
    for arguments in (5, "ab"):
        with pytest.raises(ClientError, match="is not a sequence"):
            pack(print, arguments)  # type: ignore[arg-type]


def test_a_class_can_be_called() -> None:
    class Trainer:
        pass

    assert "function.pickle" in pack(Trainer)
