"""Tables: shown as tables if they fit; with a paragraph for each row if columns would be too narrow to read."""

from __future__ import annotations

import pytest

from publisher.cli.table import level_text, show_table

COLUMNS = ["job", "ended", "user", "state", ""]
ROWS: list[list[object]] = [
    ["17", "2026-11-01T00:00:00Z", "/DC=org/DC=example/O=Grid/CN=Ada Aas 000", None, level_text("red", "refused")],
    ["18", "2026-11-02T00:00:00Z", "ada", "held", ""],
]


def shown(capsys: pytest.CaptureFixture[str], columns: list[str] = COLUMNS) -> list[str]:
    show_table("Jobs", columns, ROWS)
    return capsys.readouterr().out.splitlines()


def test_a_table_that_fits_is_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    lines = shown(capsys)
    assert any("2026-11-01T00:00:00Z" in line and "17" in line and "refused" in line for line in lines)
    assert not any(line.endswith(" ") for line in lines)


def test_one_that_fits_without_lines_is_compact(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers are whole, and headings are broken between words."""
    columns = ["user", "core hours", "cpu time", "longest waiting time"]
    rows = [["ada", "1,166", "510 d 19 h", "2 h 48 min"], ["bob", "12", "3 d", None]]

    def lines(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        show_table("Usage, by user", columns, rows, right={*columns[1:]})
        return capsys.readouterr().out.splitlines()

    assert "│ ada  │" in lines(60)[4]
    compact = [
        "Usage, by user",
        "                            longest",
        "       core                 waiting",
        "user  hours    cpu time        time",
        "───────────────────────────────────",
        "ada   1,166  510 d 19 h  2 h 48 min",
        "bob      12         3 d",
    ]
    assert (lines(36), lines(50)) == (compact, compact)
    assert lines(34) == [
        "Usage, by user",
        "       core",
        "user  hours    cpu time",
        "───────────────────────",
        "ada   1,166  510 d 19 h",
        "bob      12         3 d",
        "",
        "         longest",
        "         waiting",
        "user        time",
        "────────────────",
        "ada   2 h 48 min",
        "bob",
    ]
    rows[0][3] = "for longer than anybody knows"
    assert lines(34)[1] == "ada"


def test_one_that_does_not_has_a_paragraph_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert shown(capsys) == [
        "Jobs",
        "17",
        "  ended: 2026-11-01T00:00:00Z",
        "  user: /DC=org/DC=example/O=Grid/CN=Ada Aas 000   refused",
        "18",
        "  ended: 2026-11-02T00:00:00Z   user: ada   state: held",
    ]


def test_a_first_column_without_a_name_is_beside_the_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert shown(capsys, ["", *COLUMNS[1:]])[1] == "17  2026-11-01T00:00:00Z"


@pytest.mark.parametrize("width", ["1", "20", "60", "", "wide", "-5"])
def test_no_character_is_lost_at_any_width(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    text = "".join("".join(shown(capsys)).split())
    for row in ROWS:
        assert all("".join(str(cell).split()) in text for cell in row if cell)
