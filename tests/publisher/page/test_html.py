"""Templates make every text safe, also one that nobody thought of."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from publisher.page.html import code_text, lines_text, long_text, markup

HOSTILE = "a\x1b[31m\u202eb<i>\x9b\u2066\udcff"
SAFE = "a\\x1b[31m\\u202eb&lt;i&gt;\\x9b\\u2066\\udcff"


def test_a_template_escapes_what_it_is_given() -> None:
    person = {"name": HOSTILE, "group": HOSTILE, "role": "user"}
    menu = [{"href": f"/{HOSTILE}", "label": HOSTILE, "current": True}]
    shown = markup(
        "message.html", {"title": HOSTILE, "site": HOSTILE, "problem": HOSTILE, "person": person, "menu": menu}
    )
    assert shown.count(SAFE) == 9
    assert not {"\x1b", "\u202e", "\x9b", "\u2066", "\udcff"} & {*shown}
    assert "<i>" not in shown


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (code_text(f"`{HOSTILE}`"), f"<code>{SAFE}</code>"),
        (lines_text(f"{HOSTILE}\n{HOSTILE}"), f"{SAFE}\n{SAFE}"),
        (long_text(f"{HOSTILE}{'-' * 40}"), f"<span>{SAFE}{'-' * 40}</span>"),
    ],
)
def test_a_filter_that_makes_markup_escapes_too(made: str, shown: str) -> None:
    assert isinstance(made, Markup)
    assert shown in made
    assert not {"\x1b", "\u202e", "\x9b", "\u2066", "\udcff"} & {*made}


def test_a_text_of_many_lines_is_bounded() -> None:
    assert lines_text("x" * 20_001) == f"{'x' * 20_000}\n… (20,001 characters)"
