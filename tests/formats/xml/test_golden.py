"""Golden files of OGF-UR and EMI CAR: the message as it must look, then what was altered, or why it is held.

`--rewrite-golden` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.registry import record_format
from formats.rule_codes import CannotRenderError
from formats.view import View
from tests.formats.golden_jobs import CREATED, GOLDEN

XML_NAMES = ["emi-car", "ogf-ur"]


def golden(name: str, job_name: str) -> str:
    renderer = record_format(name, View(site="EXAMPLE-SITE"))
    try:
        rendered = renderer.record(GOLDEN[job_name], CREATED)
    except CannotRenderError as error:
        return f"held: {error}\n"
    message = renderer.message([rendered.body]).decode("ascii").replace("><", ">\n<")
    notes = [f"<!-- {note.field}: {note.rule}: {note.before} -> {note.after} -->\n" for note in rendered.notes]
    return message + "".join(notes)


@pytest.mark.parametrize("job_name", sorted(GOLDEN))
@pytest.mark.parametrize("name", XML_NAMES)
def test_golden(name: str, job_name: str, fixtures: Path, rewrite_golden: bool) -> None:
    path = fixtures / "golden" / name / f"{job_name}.txt"
    if rewrite_golden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(golden(name, job_name), encoding="ascii")
    assert golden(name, job_name) == path.read_text(encoding="ascii")


@pytest.mark.parametrize("name", XML_NAMES)
def test_no_golden_file_is_left_over(name: str, fixtures: Path) -> None:
    assert {path.stem for path in (fixtures / "golden" / name).glob("*.txt")} == set(GOLDEN)
