"""The log: one line an event, with run and batch; nothing from outside breaks a line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from formats.rule_codes import Reason
from publisher.config.operation import Log
from publisher.errors import ConfigError
from publisher.events import BatchInFlight, BatchSettled, ContextFilled, RecordSettled, RetryPlanned, TargetPaused
from publisher.observe.log import LogFile
from publisher.reason import ReasonCode


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def made(path: Path, **settings: Any) -> LogFile:
    return LogFile(Log(file=path, **settings), path)


def test_lines_of_a_run_carry_its_id_and_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = made(path, format="json")
    first = log.begin()
    log(BatchInFlight("neic", 7, 2, ("ur-1", "ur-2")))
    log(BatchSettled("neic", 7, "Accepted", 2, 4000))
    log.end(0)
    second = log.begin()
    log(TargetPaused("neic", "HTTP 503"))
    log.close()
    found = lines(path)
    assert [line["event"] for line in found] == [
        "run begun", "batch sent", "batch settled", "run ended", "run begun", "target stopped",
    ]  # fmt: skip
    assert [line["run"] for line in found] == [first] * 4 + [second] * 2
    assert found[1]["batch"] == found[2]["batch"] == 7
    assert found[3]["exit_code"] == 0
    assert found[5]["level"] == "warning"
    assert all(line["timestamp"].endswith("Z") for line in found)
    assert "record_ids" not in json.dumps(found)


def test_a_context_that_was_filled_again_is_a_warning(tmp_path: Path) -> None:
    log = made(tmp_path / "log", format="json")
    log(ContextFilled("billing", was_incomplete=False))
    log(ContextFilled("billing", was_incomplete=True))
    log.close()
    found = [(line["event"], line["context"], line["level"]) for line in lines(tmp_path / "log")]
    assert found == [("context filled", "billing", "info"), ("context filled", "billing", "warning")]


def test_debug_names_the_records_of_a_batch(tmp_path: Path) -> None:
    log = made(tmp_path / "log", format="json", level="debug")
    log(BatchInFlight("neic", 7, 2, ("ur-1", "ur-2")))
    assert lines(tmp_path / "log")[-1]["record_ids"] == ["ur-1", "ur-2"]
    log.close()


def test_at_level_warning_only_problems_are_written(tmp_path: Path) -> None:
    log = made(tmp_path / "log", format="json", level="warning")
    log.begin()
    log(BatchInFlight("neic", 7, 2))
    log(RetryPlanned("neic", 7, 2, 1.04, "HTTP 503"))
    log.close()
    (line,) = lines(tmp_path / "log")
    assert (line["answer"], line["pause_s"]) == ("HTTP 503", 1.0)


def test_a_problem_that_is_not_an_event_is_a_warning_of_the_run(tmp_path: Path) -> None:
    log = made(tmp_path / "log", format="json", level="warning")
    log.warning("before a run")
    run = log.begin()
    log.warning("in a run")
    log.close()
    found = [(line["level"], line["event"], line.get("run")) for line in lines(tmp_path / "log")]
    assert found == [("warning", "before a run", None), ("warning", "in a run", run)]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_what_comes_from_outside_stays_in_its_line(tmp_path: Path, kind: str) -> None:
    log = made(tmp_path / "log", format=kind)
    answer = 'no "quotes"\r\nlevel=info event=forged \u2028 \udcff'
    log(RecordSettled("neic", "ur-\x1b[31m\n", "rejected", Reason.of(ReasonCode.REFUSED, answer=answer)))
    log.close()
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


def test_a_log_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = made(path)
    log.begin()
    path.rename(tmp_path / "log.1")
    log.begin()
    log.close()
    assert path.read_text(encoding="utf-8").count("run begun") == 1
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def test_a_full_disk_loses_lines_and_says_so_once_a_run() -> None:
    reported: list[str] = []
    log = LogFile(Log(file=Path("/dev/full")), Path("/dev/full"), reported.append)
    for _ in range(2):
        log.begin()
        log(BatchInFlight("neic", 7, 2))
        log.end(0)
    log.close()
    assert len(reported) == 2
    assert "No space left" in reported[0]


def test_a_log_that_cannot_be_opened_anew_stops_nothing(tmp_path: Path) -> None:
    reported: list[str] = []
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "log"
    log = LogFile(Log(file=path), path, reported.append)
    path.parent.rename(tmp_path / "moved")
    log.begin()
    log.close()
    assert "log.file" in reported[0]
    assert "run begun" in (tmp_path / "moved" / "log").read_text(encoding="utf-8")


def test_a_log_that_cannot_be_written_is_reported_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.file"):
        made(tmp_path / "missing" / "log")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"log\.file"):
        made(tmp_path / "link")
