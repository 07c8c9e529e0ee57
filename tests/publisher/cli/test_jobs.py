"""jobs: one by any of its ids, or a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publisher.cli.program import BASE, Program

pytestmark = pytest.mark.inside

RECORD_ID = "ur-ce1.example.org-avAbsO63BBh600000001"


@pytest.mark.parametrize("name", [RECORD_ID, "1000001", "avAbsO63BBh600000001"], ids=["record", "local", "global"])
def test_by_any_id(published: Program, name: str) -> None:
    (job,) = published("jobs", name, "--json").ok().object["records"]
    assert (job["record_id"], job["source"]) == (RECORD_ID, "ce1")
    assert job["facts"]["end"] == "2026-09-03T02:23:43Z"
    assert job["facts"]["transfers"][0]["start"] == "2026-09-02T23:28:16Z"
    assert job["facts"]["events"][0] == {"at": "2026-09-02T23:28:14Z", "event": "ACCEPTED"}
    assert {name: place["state"] for name, place in job["targets"].items()} == {
        "files": "accepted",
        "summaries": "accepted",
    }


def test_in_full_for_people(published: Program) -> None:
    text = published("jobs", "1000001").ok().out
    assert text.startswith(f"Job {RECORD_ID}  (source ce1, stored ")
    assert "  wall_ms                9758000\n" in text
    assert "  -> files: accepted since" in text
    assert "({" not in text


def test_why_a_target_does_not_want_it(collected: Program) -> None:
    text = collected.config.read_text()
    collected.config.write_text(text.replace("[targets.files]\n", '[targets.files]\nsince = "2026-11-01"\n'))
    done = collected("jobs", "1000001").ok()
    assert "     no longer selected: it ended before `since` of the target, 2026-11-01T00:00:00Z\n" in done.out
    (job,) = collected("jobs", "1000001", "--json").ok().object["records"]
    assert set(job["not_selected"]) == {"files"}
    (record,) = (
        collected("render", "ogf-ur", "--explain", "1000001", "--target", "files", "--json").ok().object["records"]
    )
    assert record["not_selected"] == job["not_selected"]["files"]
    shown = collected("render", "ogf-ur", "--explain", "1000001", "--target", "files").ok().out
    assert "not selected by the target: it ended before `since`" in shown


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((), 39),
        (("--limit", "5"), 5),
        (("--since", "2026-10", "--until", "2026-11"), None),
        (("--state", "accepted"), 37),
        (("--state", "held"), 0),
        (("--held",), 0),
        (("--target", "files"), None),
        (("--target", "files", "--state", "accepted", "--status", "completed"), None),
        (("--vo", "alice"), None),
        (("--user", "atlas033"), None),
        (("--user", "atlas0*"), None),
        (("--status", "completed"), None),
        (("--host", "nosuch"), 0),
        (("--group", "nosuch", "--project", "*"), 0),
        (("--source", "ce1"), 39),
    ],
)
def test_filters(published: Program, filters: tuple[str, ...], expected: int | None) -> None:
    jobs = published("jobs", *filters, "--json").ok().object["records"]
    assert 0 < len(jobs) < 39 if expected is None else len(jobs) == expected
    if filters[:1] == ("--since",):
        assert all(job["facts"]["end"].startswith("2026-10") for job in jobs)
    if filters[:1] == ("--vo",):
        assert {job["facts"]["vo"] for job in jobs} == {"alice"}
    ends = [job["facts"]["end"] for job in jobs]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize(
    ("filters", "total"),
    [((), 39), (("--state", "accepted"), 37), (("--source", "ce1"), 39), (("--since", "2026-10"), None)],
)
def test_it_says_how_many_there_are_and_how_many_it_shows(
    published: Program, filters: tuple[str, ...], total: int | None
) -> None:
    whole = published("jobs", *filters, "--all", "--json").ok().object
    assert whole["total"] == whole["shown"] == len(whole["records"]) > 2
    assert total in {None, whole["total"]}
    part = published("jobs", *filters, "--limit", "2", "--json").ok().object
    assert (part["total"], part["shown"]) == (whole["total"], 2)
    assert part["records"] == whole["records"][:2]
    said = published("jobs", *filters, "--limit", "2").ok().err
    assert f"the newest 2 of {whole['total']} are shown; --limit N or --all shows more" in said
    assert "are shown" not in published("jobs", *filters, "--all").ok().err
    assert published("jobs", "--all", "--limit", "2").code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--held", "--state", "accepted"), "--held cannot be combined with --state"),
        (("--target", "file"), "unknown target 'file'; known: files"),
        (("--state", "hold"), "unknown state 'hold'"),
    ],
)
def test_what_cannot_be_asked(published: Program, options: tuple[str, ...], said: str) -> None:
    done = published("jobs", *options)
    assert (done.code, said in done.err) == (2, True), done.err


def test_nothing_matches(published: Program) -> None:
    done = published("jobs", "--queue", "nosuch").ok()
    assert (done.out, done.err) == ("", "no job matches\n")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Program:
    """A site of a real Grid Engine, whose job 23 is an array of three tasks."""
    source = f'[sources.ge]\ntype = "gridengine"\npath = "{fixtures / "gridengine" / "real" / "accounting"}"\n'
    program = Program(tmp_path_factory.mktemp("arrays"), BASE + source)
    program("collect").ok()
    return program


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (("23",), {1, 2, 3}),
        (("23.2",), {2}),
        (("23", "--task", "1-3:2"), {1, 3}),
        (("23", "--status", "cancelled", "--task", "1"), set()),
        (("23", "--until", "2026-01"), set()),
        (("--task", "2-3"), None),
        (("--reservation", "1"), {None}),
    ],
)
def test_an_array_and_its_tasks(arrays: Program, options: tuple[str, ...], tasks: set[int | None] | None) -> None:
    done = arrays("jobs", *options, "--json")
    if tasks == set():
        assert (done.code, "job 23 does not match these filters" in done.err) == (2, True)
        return
    found = done.ok().object
    assert found["total"] == found["shown"] == len(found["records"])
    shown = {record["facts"].get("array_task") for record in found["records"]}
    assert shown == ({2, 3} if tasks is None else tasks)


def test_tasks_beyond_the_limit_are_counted(arrays: Program) -> None:
    found = arrays("jobs", "23", "--limit", "2", "--json").ok().object
    assert (found["total"], found["shown"], len(found["records"])) == (3, 2, 2)
    text = arrays("jobs", "23", "--limit", "2").ok()
    assert (text.out.count("Job "), "the first 2 of 3 are shown" in text.err) == (2, True)
