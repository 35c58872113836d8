"""Tests that the cause of a failure is found in the last words of real programs."""

from __future__ import annotations

import pytest
from elasticjob_api.last_words import cause, cause_first, exit_text, signal_name
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.guarantee("cause-comes-first")
WAITS = "elasticjob-agent: no connection to the master, retrying (UNAVAILABLE: connect failed)"
SOCKET = (
    "[W socket.cpp:697] [c10d] The client socket has failed to connect to [h]:29500 (errno: 97)."
)
AT_EXIT = "[rank1]:[W1128 09:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: group is NOT destroyed"
TRACEBACK = """\
Traceback (most recent call last):
  File "/train.py", line 3, in <module>
    main()
torch.cuda.OutOfMemoryError: CUDA out of memory.
CUDA kernel errors might be asynchronously reported."""
OF_RANK = "\n".join(f"[rank1]: {line}" for line in TRACEBACK.splitlines())
CHAINED = f"""\
{TRACEBACK}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/train.py", line 9, in <module>
KeyError"""


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        ("", 1, ""),
        ("a\nb\n", 1, "b"),
        (TRACEBACK, 1, "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        (f"{WAITS}\n{SOCKET}\n{TRACEBACK}\n{SOCKET}", 1, TRACEBACK.splitlines()[3]),
        (f"{OF_RANK}\n{AT_EXIT}", 1, "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory."),
        (CHAINED, 1, "KeyError"),
        (f"{TRACEBACK}\nrank 1/2 from step 91\n{SOCKET}", 137, "rank 1/2 from step 91"),
        (f"{WAITS}\nrank 1/2 from step 91\n{WAITS}", 137, "rank 1/2 from step 91"),
        (f"{TRACEBACK}\nelasticjob-agent: broken node: Xid 79", 1, "…broken node: Xid 79"),
        (
            "[0] elasticjob-agent: cannot run 'a': no such file",
            127,
            "…cannot run 'a': no such file",
        ),
        (WAITS, 137, WAITS),
        (
            "terminate called after 'std::bad_alloc'\n  what():  std::bad_alloc\nx",
            134,
            "…bad_alloc",
        ),
        ("Fatal Python error: Segmentation fault\n\nThread 1:\n  File", 139, "…fault"),
    ],
)
def test_the_cause_is_the_last_exception_and_never_a_warning_or_a_note_of_the_agent(
    words: str, code: int, found: str
) -> None:
    if found.startswith("…"):
        assert cause(words, code).endswith(found[1:])
    else:
        assert cause(words, code) == found


def test_a_text_begins_with_its_cause_and_ends_with_its_last_part() -> None:
    words = "\n".join([*(f"step {step}" for step in range(100)), TRACEBACK, SOCKET])
    text = cause_first(words, 400, 1)
    assert text.startswith("torch.cuda.OutOfMemoryError: CUDA out of memory.\nstep ")
    assert text.endswith(SOCKET)
    assert len(text) <= 400
    assert cause_first("the last words\n", 400, 1) == "the last words"


def test_of_the_retries_of_pip_only_the_last_is_shown() -> None:
    retries = [
        f"WARNING: Retrying (Retry(total={left})) after: no route" for left in range(4, -1, -1)
    ]
    error = "ERROR: No matching distribution found for foo"
    assert cause_first("\n".join([*retries, error]), 400, 1) == f"{error}\n{retries[-1]}\n{error}"
    assert cause_first(retries[0], 400) == retries[0]


@given(st.text(), st.integers(1, 300), st.integers(0, 255))
def test_any_text_has_a_bounded_cause(words: str, most: int, code: int) -> None:
    assert len(cause_first(words, most, code)) <= most
    assert cause(words, code) in words


def test_signals_have_names() -> None:
    assert exit_text(137) == "exit code 137 (SIGKILL)"
    assert [exit_text(code) for code in (0, 1, 128, 200)] == [
        f"exit code {code}" for code in (0, 1, 128, 200)
    ]
    assert (signal_name(15), signal_name(40)) == ("SIGTERM", "signal 40")
