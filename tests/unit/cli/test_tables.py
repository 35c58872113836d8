"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from elasticjob_cli.common.formatting import grid, plain_text, table_of
from elasticjob_cli.common.tables import Page


def lines(
    rows: list[tuple[str, str]],
    width: int,
    *,
    wrapped: tuple[str, ...] = (),
    cut: tuple[str, ...] = (),
) -> list[str]:
    columns: dict[str, Callable[[tuple[str, str]], str]] = {
        "NAME": lambda row: row[0],
        "MESSAGE": lambda row: row[1],
    }
    table = table_of(rows, columns, wrapped=wrapped, cut=cut)
    return table.text(width, colored=False).splitlines()


def test_names_are_whole_whatever_the_width() -> None:
    assert lines([("a" * 50, "b")], 20) == ["NAME" + " " * 48 + "MESSAGE", "a" * 50 + "  b"]


def test_a_long_message_is_wrapped_between_words() -> None:
    found = lines([("job", "one two three four five six seven")], 30, wrapped=("MESSAGE",))
    assert found == ["NAME  MESSAGE", "job   one two three four five", "      six seven"]


def test_a_message_that_is_cut_takes_one_line() -> None:
    found = lines([("job", "one two three four five six seven")] * 2, 30, cut=("MESSAGE",))
    assert found[1:] == ["job   one two three four five…"] * 2


@pytest.mark.parametrize("text", ["日本語", "e\u0301x"])
def test_wide_and_combining_characters_take_their_columns(text: str) -> None:
    columns = {"日本語": 6, "e\u0301x": 2}[text]
    assert lines([(text, "b"), ("c" * 8, "d")], 80)[1] == text + " " * (8 - columns) + "  b"


def test_a_style_ends_with_its_text() -> None:
    page = Page(plain_text("a", "bold"), grid([("b", plain_text("c", "red"))]))
    assert page.text(80, colored=True) == "\033[1ma\033[0m\nb  \033[31mc\033[0m\n"
    assert page.text(80, colored=False) == "a\nb  c\n"
