"""check as people and monitoring call it."""

from __future__ import annotations

import re

import pytest

from publisher.cli.check_cmd import nagios_line
from tests.publisher.cli.program import WHOLE, Program

pytestmark = pytest.mark.inside

LINE = re.compile(r"USAGE-PUBLISHER (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+( \| ('[\w.-]+'=\d+[sc]?(;;;0)? ?)+)?\n")


@pytest.mark.parametrize(
    ("text", "word", "code"),
    [
        (WHOLE, "OK", 0),
        (WHOLE.replace('type = "arc"', 'type = "arc"\nexpect_every = "1h"'), "WARNING", 1),
        (WHOLE.replace("accounting.db", "nosuch.db"), "CRITICAL", 2),
        (WHOLE.replace("benchmark", "benchmerk"), "UNKNOWN", 3),
        (WHOLE.replace('"arc"', '"ark"'), "UNKNOWN", 3),
    ],
    ids=["well", "silent", "source", "key", "type"],
)
def test_nagios(collected: Program, text: str, word: str, code: int) -> None:
    collected.configure(text)
    done = collected("check", "--nagios")
    assert done.code == code, (done.out, done.err)
    found = LINE.fullmatch(done.out)
    assert found is not None, done.out
    assert found[1] == word
    if word != "UNKNOWN":
        assert "'files_waiting'=37;;;0" in done.out


def test_the_line_is_one_line() -> None:
    assert nagios_line(2, "a|b\nc\x1b[31m", "'x'=1") == "USAGE-PUBLISHER CRITICAL - a/b c\\x1b[31m | 'x'=1"


def test_an_unknown_type_of_source_is_an_error_of_the_configuration(fresh: Program) -> None:
    fresh.configure(WHOLE.replace('"arc"', '"ark"'))
    done = fresh("check")
    assert done.code == 2
    assert "sources.ce1.type" in done.err


def test_first_and_last_job_are_shown(collected: Program) -> None:
    out = collected("check").out
    assert "first job accepted" in out
    assert "jobs collected, the last ended" in out
