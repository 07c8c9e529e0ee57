"""Records from AUDITOR's table in PostgreSQL, in the order of their last change.

Nothing is ever written: the transaction is read-only, and sees one instant. Rows come through a cursor of the server,
so memory does not grow with the table; a text that is too long is cut there, and its row refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from publisher.config.auditor_source import AuditorSourceSettings
from publisher.errors import MissingExtraError, SourceError, SourceFormatError
from publisher.sources.auditor.record import BadRow, Found, Part, time_text
from publisher.sources.limits import IDENTITY_CHARACTERS

if TYPE_CHECKING:
    import psycopg

_CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3,
}  # fmt: skip
"""A server that vanishes is noticed within a minute."""
_PART_ROWS: Final = 2_000
_TEXT: Final = 1_000_000
"""The longest text of `meta` and `components` that is read: a request to AUDITOR has at most 2 MiB."""
_COLUMNS: Final = f"""
    left(record_id, {IDENTITY_CHARACTERS + 1}), left(meta::text, {_TEXT + 1}), left(components::text, {_TEXT + 1}),
    CASE WHEN isfinite(start_time) THEN round(extract(epoch FROM start_time)::numeric * 1000000)::bigint END,
    CASE WHEN isfinite(stop_time) THEN round(extract(epoch FROM stop_time)::numeric * 1000000)::bigint END,
    runtime, round(extract(epoch FROM updated_at)::numeric * 1000000)::bigint
"""
_FROM: Final = "FROM auditor_accounting WHERE stop_time IS NOT NULL"
_AT: Final = "'epoch'::timestamptz + %s * interval '1 microsecond'"
_SINCE: Final = f"SELECT {_COLUMNS} {_FROM} AND updated_at >= {_AT} ORDER BY updated_at, id"
_ENDED: Final = f"SELECT {_COLUMNS} {_FROM} AND stop_time >= {_AT} AND stop_time < {_AT} ORDER BY stop_time, id"
_NEWEST: Final = f"SELECT {_COLUMNS} {_FROM} ORDER BY stop_time DESC LIMIT %s"
_OLDEST_END: Final = "round(extract(epoch FROM min(stop_time))::numeric * 1000000)::bigint"
_OLDEST: Final = f"SELECT {_OLDEST_END} {_FROM} AND isfinite(stop_time)"
_LATEST_US: Final = 253_402_300_800_000_000
_HINTS: Final = {
    "28P01": "Check user and password: in the URL, or in the file that PGPASSFILE names (~/.pgpass)",
    "42501": "Let its user read the table: GRANT SELECT ON auditor_accounting TO ...",
    "57014": "Raise `timeout` of the source, or create an index: CREATE INDEX ON auditor_accounting (updated_at)",
    "42P01": "Give the URL of AUDITOR's database: it has the table auditor_accounting",
}
"""By the codes of PostgreSQL's Appendix A."""


class TableRecords:
    """The rows of AUDITOR's table."""

    by_change = True

    def __init__(self, settings: AuditorSourceSettings) -> None:
        """Raises `MissingExtraError` without the driver."""
        if find_spec("psycopg") is None:
            raise MissingExtraError("psycopg")
        self._url = settings.url
        self._place = settings.place
        self._timeout_ms = max(1, round(settings.timeout * 1000))

    def since(self, position_us: int) -> Iterator[Part]:
        """See `Records`."""
        return self._parts(_SINCE, [position_us], by_change=True)

    def ended(self, begin_us: int, until_us: int | None) -> Iterator[Part]:
        """See `Records`."""
        return self._parts(_ENDED, [begin_us, _LATEST_US if until_us is None else until_us], by_change=False)

    def newest(self, number: int) -> list[Found]:
        """See `Records`."""
        return [each for part in self._parts(_NEWEST, [number], by_change=False) for each in part.found]

    def oldest_us(self) -> int | None:
        """See `Records`."""
        with self._session() as session:
            row = session.execute(_OLDEST).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """See `Records`: each reading has its own connection."""

    def _parts(self, query: str, values: list[int], *, by_change: bool) -> Iterator[Part]:
        with self._session() as session, session.cursor(name="usage_publisher") as rows:
            rows.execute(query, values)
            while part := rows.fetchmany(_PART_ROWS):
                position = part[-1][6] if by_change else part[-1][4]
                yield Part([_found(row) for row in part], position or 0)

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection[Any]]:
        import psycopg  # noqa: PLC0415 - the driver is an extra

        try:
            with psycopg.connect(self._url, **_CONNECTION) as session:
                session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                session.read_only = True
                session.execute(f"SET LOCAL statement_timeout = {self._timeout_ms}")
                yield session
        except psycopg.Error as error:
            code = error.sqlstate or ("28P01" if "authentication failed" in str(error) else "")
            said = " ".join(str(error).split())
            hint = _HINTS.get(code, "Check that the server runs and accepts connections; the next run reads again")
            kind = SourceFormatError if code in {"42P01", "42703"} else SourceError
            raise kind(f"AUDITOR's database {self._place} cannot be read: {said}", hint=hint) from error


def _found(row: tuple[Any, ...]) -> Found:
    record_id, meta, components, start, stop, runtime, _ = row
    if any(text is not None and len(text) > _TEXT for text in (meta, components)):
        return BadRow(record_id, f"meta or components have more than {_TEXT} characters")
    if start is None or stop is None or not (0 <= start < _LATEST_US and 0 <= stop < _LATEST_US):
        return BadRow(record_id, "start_time or stop_time is before 1970 or after the year 9999")
    try:
        columns = {"meta": _json(meta), "components": _json(components)}
    except (ValueError, RecursionError):
        return BadRow(record_id, "meta or components have a number that is too long, or are nested too deeply")
    return {
        "record_id": record_id,
        "start_time": time_text(start),
        "stop_time": time_text(stop),
        "runtime": runtime,
        **columns,
    }


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
