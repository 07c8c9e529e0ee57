"""The tables of fields and limits in the folder of the formats' pages, made from the rules that the program applies."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from formats.registry import FORMATS
from formats.rules import BY_KEY, NameRule, NumberRule, Rule, TextRule

FIELDS: Final = ("format", "field", "from", "rule", "settings of the target")
LIMITS: Final = ("rules", "field", "limit", "otherwise", "source")
OTHERWISE: Final = {"drop": "omitted", "hold": "held", "shorten": "cut"}


def fields() -> Iterator[tuple[str, ...]]:
    """A row for each field of each format: facts of the run, rule, settings."""
    for name, form in FORMATS.items():
        for field, origin in form.origins.items():
            yield name, field, " ".join(origin.facts), origin.how, " ".join(origin.settings)


def limits() -> Iterator[tuple[str, ...]]:
    """A row for each limit of a receiver: what fits, and what happens to a value that does not."""
    for key, rule in BY_KEY.items():
        family = key.partition(":")[0]
        yield family, rule.field, limit(rule), OTHERWISE[misfit(rule)], rule.source


def limit(rule: Rule) -> str:
    if isinstance(rule, NumberRule):
        return f"{rule.least} to {rule.largest}"
    text = f"{rule.longest} characters"
    if isinstance(rule, NameRule):
        return f"host name of {text}"
    return f"{text}, {rule.longest_bytes} bytes" if rule.longest_bytes else text


def misfit(rule: Rule) -> str:
    if isinstance(rule, TextRule):
        return rule.too_long
    return rule.outside if isinstance(rule, NumberRule) else rule.otherwise


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


@pytest.mark.parametrize(("name", "text"), [("fields", table(FIELDS, fields())), ("limits", table(LIMITS, limits()))])
def test_the_table_has_the_rules_of_the_program(root: Path, name: str, text: str, *, rewrite_golden: bool) -> None:
    page = root / "docs" / "reference" / "formats" / f"{name}.csv"
    if rewrite_golden:
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text
