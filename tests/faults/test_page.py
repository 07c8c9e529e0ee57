"""The table has a row for each fault, in order, and nothing else; and each row has a test that writes it."""

from __future__ import annotations

from pathlib import Path

from tests.faults.guarantees import FAULTS, rows_of


def test_the_table_has_the_rows_of_all_faults_in_order(root: Path) -> None:
    text = (root / "docs" / "internals" / "faults.csv").read_text("utf-8")
    assert list(rows_of(text)) == [fault.title for fault in FAULTS.values()]


def test_the_page_says_what_all_rows_have_in_common(root: Path) -> None:
    """A row is written only for a fault that lost nothing (`Guarantees.row`)."""
    page = (root / "docs" / "internals" / "guarantees.md").read_text("utf-8")
    assert f"{len(FAULTS)} faults" in page
    assert "No job was lost, and at most one batch was sent twice" in " ".join(page.split())
    rows = rows_of((root / "docs" / "internals" / "faults.csv").read_text("utf-8"))
    assert [title for title, row in rows.items() if row.twice > 10] == []


def test_every_fault_is_made_to_happen_by_a_test(root: Path) -> None:
    modules = [*(root / "tests" / "faults").glob("test_*.py"), *(root / "tests" / "crash").glob("test_*.py")]
    text = "".join(module.read_text("utf-8") for module in modules)
    for key in FAULTS:
        beginning, _, command = key.rpartition(" ")
        named = f'"{key}"' in text or (f'f"{beginning} {{command}}"' in text and f'"{command}"' in text)
        assert named, key
