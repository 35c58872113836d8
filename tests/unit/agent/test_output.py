"""Output of several processes: each line complete, with its process in front."""

from __future__ import annotations

import itertools
import os

import pytest
from elasticjob_agent.training_process import LinePrefix, copy_stream
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r"])),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_lines_have_one_prefix_each_however_the_output_is_split(
    parts: list[bytes], cuts: list[int]
) -> None:
    output = b"".join(parts)
    borders = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    prefix = LinePrefix(b"[3] ")
    copied = (
        b"".join(prefix.add(output[start:end]) for start, end in itertools.pairwise(borders))
        + prefix.finish()
    )
    whole = LinePrefix(b"[3] ")
    assert copied == whole.add(output) + whole.finish()
    assert copied.replace(b"[3] ", b"").rstrip(b"\n") == output.rstrip(b"\n")
    lines = copied.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    assert all(line.startswith(b"[3] ") for line in lines if line)


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"one\ntwo\n", b"[1] one\n[1] two\n"),
        (b"no end", b"[1] no end\n"),
        (b"10%\r20%\rdone\n", b"[1] 10%\r[1] 20%\r[1] done\n"),
        (b"\xff\n", b"[1] \xff\n"),
        (b"", b""),
    ],
)
def test_what_is_shown(output: bytes, shown: bytes) -> None:
    prefix = LinePrefix(b"[1] ")
    assert prefix.add(output) + prefix.finish() == shown


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    assert len(LinePrefix(b"[1] ").add(b"x" * 100_000)) == 100_005


def test_without_a_prefix_bytes_are_copied_as_they_come() -> None:
    source, sink = os.pipe()
    result, target = os.pipe()
    os.write(sink, b"half a li")
    os.close(sink)
    seen: list[bytes] = []
    copy_stream(source, target, prefix=b"", on_chunk=seen.append)
    assert (os.read(result, 100), seen) == (b"half a li", [b"half a li"])
    for number in (source, result, target):
        os.close(number)
