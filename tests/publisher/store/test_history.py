"""The history of runs: what it keeps, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.errors import StoreCorruptError
from publisher.store import history
from publisher.store.database import Store, open_store
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
            assert (ended.ended_at, ended.exit_code, ended.done) == (NOW + 60, 3, {"targets": {"a": {"held": 1}}})
            assert (at_work.id, at_work.ended_at, at_work.host) == (second, None, "other")
            assert history.newest(connection, 1) == [at_work]
            assert [history.of_id(connection, unknown) for unknown in (99, -1, 2**63 - 1, 2**63, 10**40)] == [None] * 5
            connection.execute(program_runs.update().values(done="{"))
            with pytest.raises(StoreCorruptError, match="in the history cannot be read"):
                history.newest(connection)
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
