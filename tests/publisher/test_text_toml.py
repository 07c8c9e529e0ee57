"""What is written as TOML is read back as it was, whatever is in it."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from publisher.text import quoted, text_of

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
values = st.one_of(text, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.lists(text, max_size=3))
inline = st.dictionaries(text, values, max_size=3)
entries = st.dictionaries(text, st.one_of(values, inline, st.lists(inline, min_size=1, max_size=2)), max_size=4)
sections = st.dictionaries(text, entries, max_size=3)


@given(st.dictionaries(text, sections, max_size=3))
def test_it_comes_back(tables: dict[str, Any]) -> None:
    assert tomllib.loads(text_of(tables)) == tables


@given(text)
def test_a_terminal_has_nothing_to_obey(value: str) -> None:
    assert quoted(value).isprintable()


def test_as_people_write_it() -> None:
    tables = {
        "site": {"name": "A"},
        "sources": {"a b": {"benchmark": {"type": "x", "value": 1.5}, "map": [{"vo": "y"}]}},
    }
    assert text_of(tables) == (
        '[site]\nname = "A"\n\n[sources."a b"]\nbenchmark = { type = "x", value = 1.5 }\n\n'
        '[[sources."a b".map]]\nvo = "y"\n'
    )
