"""Texts of other users reach terminals and logs without characters that control a terminal."""

from __future__ import annotations

import json
import logging
import sys
import unicodedata

import pytest
from elasticjob_api.plain_text import printable
from elasticjob_api.text_log import log_handler
from hypothesis import given
from hypothesis import strategies as st

HOSTILE = "a\x1b[2J\x9b31m\x7f\u202eb\u2066\nc\r\td\u2028e\ud800"


@pytest.mark.guarantee("others-texts-are-shown-plainly")
def test_control_characters_are_escaped() -> None:
    assert printable(HOSTILE) == (r"a\u001b[2J\u009b31m\u007f\u202eb\u2066\nc\r\td\u2028e\ud800")
    assert printable("a\nb\x1b", lines=True) == "a\nb\\u001b"
    for plain in ("é 日本　語 \U0001f469\u200d\U0001f680", "a\\nb", ""):
        assert printable(plain) == plain


@given(st.text())
def test_no_text_controls_a_terminal_and_json_keeps_its_value(text: str) -> None:
    shown = printable(text)
    assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")]
    bidirectional = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert not [each for each in shown if unicodedata.bidirectional(each) in bidirectional]
    document = json.dumps([text], indent=2, ensure_ascii=False)
    assert json.loads(printable(document, lines=True)) == [text]


@pytest.mark.guarantee("others-texts-are-shown-plainly")
def test_a_record_of_a_log_is_one_line_and_a_traceback_has_no_control_characters() -> None:
    handler = log_handler("%(levelname)s %(message)s")
    record = logging.makeLogRecord({"msg": "job %s", "args": (HOSTILE,), "levelname": "INFO"})
    assert handler.format(record) == f"INFO job {printable(HOSTILE)}"
    try:
        raise ValueError("a\x1bb")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert handler.format(record).splitlines()[-1] == r"ValueError: a\u001bb"
