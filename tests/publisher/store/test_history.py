"""The history of runs: what it keeps, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from publisher.status.run_summary import summary_of
from publisher.store import history
from publisher.store.admin.column_checks import wrong_columns
from publisher.store.database import Store, open_store
from publisher.store.history import RunDone, TargetDone
from publisher.store.schema import program_runs
from tests.publisher.site import store_url_of

pytestmark = pytest.mark.either_store
NOW = 1_793_491_200
MONTH_S = 31 * 86_400


def opened(folder: Path) -> Store:
    url = store_url_of(folder)
    return open_store(f"sqlite:///{folder / 'store.db'}" if url.startswith("sqlite") else url)


def test_what_a_run_did_is_read_back(tmp_path: Path) -> None:
    store = opened(tmp_path)
    try:
        with store.write() as connection:
            first = history.begin(connection, "run", "host", NOW, 13)
            second = history.begin(connection, "publish", "other", NOW + 1, 13)
        with store.write() as connection:
            history.end(connection, first, NOW + 60, 3, {"targets": {"a": {"held": 1}}})
            at_work, ended = history.newest(connection)
            assert ended == history.of_id(connection, first)
            done = RunDone(targets={"a": TargetDone(held=1)})
            assert (ended.ended_at, ended.exit_code, ended.done, ended.damage) == (NOW + 60, 3, done, None)
            assert (at_work.id, at_work.ended_at, at_work.host) == (second, None, "other")
            assert history.newest(connection, 1) == [at_work]
            assert [history.of_id(connection, unknown) for unknown in (99, -1, 2**63 - 1, 2**63, 10**40)] == [None] * 5
    finally:
        store.close()


@pytest.mark.parametrize("done", ["{", "[]", "7", '{"sources":5}', '{"checked":[]}', "[" * 100_000])
def test_a_row_that_cannot_be_read_says_so_and_nothing_else_fails(tmp_path: Path, done: str) -> None:
    store = opened(tmp_path)
    try:
        with store.write() as connection:
            damaged, other = (history.begin(connection, "run", "host", NOW, 13) for _ in range(2))
            history.end(connection, other, NOW + 60, 0, {})
            connection.execute(program_runs.update().where(program_runs.c.id == damaged).values(done=done))
            listed = {run.id: run for run in history.newest(connection)}
            assert (listed[other].done, listed[other].damage) == (RunDone(), None)
            assert listed[damaged] == history.of_id(connection, damaged)
            assert (listed[damaged].command, listed[damaged].done) == ("run", None)
            assert f"`done` of run {damaged} in the history cannot be read" in str(listed[damaged].damage)
            assert [found for found in wrong_columns(connection) if "history" in found] == [listed[damaged].damage]
    finally:
        store.close()


@pytest.mark.parametrize("column", ["command", "host", "began_at", "ended_at", "exit_code"])
def test_a_column_that_cannot_be_read_says_so(tmp_path: Path, column: str) -> None:
    """SQLite keeps a value of any type. The next run must not fail of it."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        with store.write() as connection:
            damaged = history.begin(connection, "run", "host", NOW, 13)
            connection.execute(text(f"UPDATE program_runs SET {column} = CAST('x' AS BLOB)"))
            (run,) = history.newest(connection)
            assert getattr(run, column) in {None, ""}
            assert f"`{column}` of run {damaged} in the history cannot be read" in str(run.damage)
            assert summary_of(run).result == "its record cannot be read"
            assert history.begin(connection, "run", "host", NOW, 13) != damaged
    finally:
        store.close()


def test_old_runs_leave_and_a_wrong_clock_deletes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    try:
        with store.write() as connection:
            for at in (NOW, NOW + MONTH_S, NOW + 200 * MONTH_S, NOW + 2 * MONTH_S):
                history.begin(connection, "run", "host", at, 13)
            assert history.count(connection) == 4
            history.begin(connection, "run", "host", NOW + 15 * MONTH_S, 13)
            kept = sorted(run.began_at for run in history.newest(connection))
            assert kept == [NOW + each * MONTH_S for each in (2, 15, 200)]
    finally:
        store.close()
