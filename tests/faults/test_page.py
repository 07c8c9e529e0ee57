"""The page has a row for each fault, in order, and nothing else; and each row has a test that writes it."""

from __future__ import annotations

from pathlib import Path

from tests.faults.guarantees import FAULTS, rows_of


def test_the_page_has_the_rows_of_all_faults_in_order(root: Path) -> None:
    text = (root / "docs" / "internals" / "guarantees.md").read_text("utf-8")
    assert list(rows_of(text)) == [fault.title for fault in FAULTS.values()]


def test_nothing_is_lost_in_any_row(root: Path) -> None:
    """Whoever rewrites the page looks at what it says."""
    text = (root / "docs" / "internals" / "guarantees.md").read_text("utf-8")
    for title, row in rows_of(text).items():
        lost, twice = row.replace("\\|", "").split("|")[3:5]
        assert int(lost) == 0, title
        assert int(twice) <= 10, title


def test_every_fault_is_made_to_happen_by_a_test(root: Path) -> None:
    modules = [*(root / "tests" / "faults").glob("test_*.py"), *(root / "tests" / "crash").glob("test_*.py")]
    text = "".join(module.read_text("utf-8") for module in modules)
    for key in FAULTS:
        beginning, _, command = key.rpartition(" ")
        named = f'"{key}"' in text or (f'f"{beginning} {{command}}"' in text and f'"{command}"' in text)
        assert named, key
