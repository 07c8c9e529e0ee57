"""Records from AUDITOR's REST interface: pages by the end of the records, each proved to be whole.

AUDITOR answers with a stream that ends cleanly if its database fails meanwhile: a short answer looks complete. So every
query has a limit. An answer with as many records as the limit cannot be short; the last one of a reading counts only if
the same time, asked for in the opposite order, has the same records.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from publisher.config.auditor_source import LARGEST_PAGE, AuditorSourceSettings
from publisher.config.operation import Credentials
from publisher.errors import CredentialError, SourceError, SourceFormatError
from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.exchange import Failure
from publisher.security.http import HttpClient, Reply
from publisher.security.tls import Trust
from publisher.sources.auditor.record import Found, Part, instant_us, time_text
from publisher.sources.fields import LineError
from publisher.sources.logs.json_stream import Damaged, JsonElements
from publisher.text import safe

_READINGS: Final = 8
"""How often a short answer is asked for: new records may arrive between two readings."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
"""Names and values that a query may contain as they are; AUDITOR refuses a query with encoded brackets."""
_SHOWN: Final = 300
_TIMES: Final = {
    "timeout": "Raise `timeout` of the source, or lower `page`",
    "write-timeout": "Raise `timeout` of the source",
}
_Order = Literal["asc", "desc"]


class RestRecords:
    """The records of a REST interface that a source selects. `clock`: epoch seconds."""

    by_change = False

    def __init__(self, settings: AuditorSourceSettings, clock: Callable[[], float] = time.time) -> None:
        """Raises `ConfigError` for a URL that would send credentials in plain text."""
        self._url = settings.url
        self._page = settings.page
        given = settings.credentials or Credentials()

        def credentials() -> ClientCredentials | None:
            if given.certificate is None or given.key is None:
                return None
            return load_credentials(given.certificate, given.key, now_s=clock())

        self._client = HttpClient(
            settings.url,
            trust=Trust(ca_directory=given.ca_directory, ca_file=given.ca_file),
            credentials=credentials,
            timeout_s=settings.timeout,
            allows_plain=settings.plain_http,
        )
        # The others are compared here only.
        self._where = "".join(
            f"&meta[{key}][c][0]={quote(value, safe='')}"
            for key, value in settings.where.items()
            if _PLAIN.fullmatch(key)
        )

    def since(self, position_us: int) -> Iterator[Part]:
        """See `Records`."""
        return self.ended(position_us, None)

    def ended(self, begin_us: int, until_us: int | None) -> Iterator[Part]:
        """See `Records`."""
        at, seen = begin_us, set[str]()
        limit = self._page
        while True:
            answer = self._whole(at, until_us, limit)
            if answer is None:
                if limit == 1:
                    raise SourceFormatError(f"{self._url}: a record that ended at {time_text(at)} is too large")
                limit //= 2
                continue
            objects, is_last = answer
            ends = [_end_us(each) for each in objects]
            known = [end for end in ends if end is not None]
            if known != sorted(known) or (known and known[0] < at):
                raise SourceFormatError(f"{self._url} does not answer in the order that it is asked for")
            fresh = [each for each in objects if _key(each) not in seen]
            position = known[-1] if known else at
            yield Part([*fresh], position)
            if is_last:
                return
            if position == at and len(objects) <= len(seen):
                limit = self._larger(limit, at)
            seen = {_key(each) for each, end in zip(objects, ends, strict=True) if end == position or end is None}
            at = position

    def _larger(self, limit: int, at: int) -> int:
        """The next limit, where a whole answer has one time of the end."""
        if limit >= LARGEST_PAGE:
            raise SourceFormatError(
                f"{self._url}: more than {limit} records ended at {time_text(at)}",
                hint="Read the table instead: `url` with postgresql://",
            )
        return min(limit * 2, LARGEST_PAGE)

    def newest(self, number: int) -> list[Found]:
        """See `Records`."""
        return [*(self._ask("desc", 0, None, number) or ())]

    def oldest_us(self) -> int | None:
        """See `Records`."""
        answer = self._ask("asc", 0, None, 1)
        return _end_us(answer[0]) if answer else None

    def close(self) -> None:
        """See `Records`."""
        self._client.close()

    def _whole(self, begin_us: int, until_us: int | None, limit: int) -> tuple[list[dict[str, Any]], bool] | None:
        """The first records of a time, and whether there are no more; None: the answer is too large."""
        before: set[str] | None = None
        for reading in range(_READINGS):
            is_ascending = reading % 2 == 0
            answer = self._ask("asc" if is_ascending else "desc", begin_us, until_us, limit)
            if answer is None:
                return None
            if is_ascending and len(answer) == limit:
                return answer, False
            keys = {_key(each) for each in answer}
            if keys == before:
                return answer if is_ascending else answer[::-1], True
            before = keys
        raise SourceError(
            f"{self._url} gives other records each time it is asked for those since {time_text(begin_us)}",
            hint="Its database may fail while it answers: see AUDITOR's log. The next run reads the same time again",
        )

    def _ask(self, order: _Order, begin_us: int, until_us: int | None, limit: int) -> list[dict[str, Any]] | None:
        """The records of one answer; None: it is too large."""
        query = f"stop_time[gte]={time_text(begin_us)}"  # also leaves out records that have not ended
        if until_us is not None:
            query += f"&stop_time[lt]={time_text(until_us)}"
        query += f"&sort_by[{order}]=stop_time&limit={limit}{self._where}"
        try:
            reply = self._client.request("GET", f"{self._url}/records?{query}")
        except CredentialError as error:
            raise SourceError(error.message, hint=error.hint) from error
        if isinstance(reply, Failure):
            if reply.kind == "too-large":
                return None
            raise SourceError(f"{self._url}: {reply.message}", hint=_TIMES.get(reply.kind, reply.hint))
        if reply.status != 200:
            raise _refusal(self._url, reply)
        return _objects(self._url, reply.body)


def _objects(url: str, body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream. Raises `SourceFormatError`."""
    objects: list[dict[str, Any]] = []
    for element in JsonElements(io.BytesIO(body).read):
        if isinstance(element, Damaged):
            raise SourceFormatError(
                f"the answer of {url} is not a stream of records: {element.reason}: {safe(element.begin[:_SHOWN])}",
                hint="Check that the URL is that of AUDITOR, without a path",
            )
        objects.append(element)
    return objects


def _refusal(url: str, reply: Reply) -> SourceError:
    text = safe(reply.body[:_SHOWN].decode("utf-8", "replace"))
    if reply.status in {401, 403}:
        hint = "AUDITOR knows readers by the name (CN) in their certificate: see read_access_cn in its configuration"
    elif reply.status in {400, 404}:
        hint = "Check that the URL is that of AUDITOR 0.8 or later, without a path"
    else:
        hint = "See AUDITOR's log; the next run reads again"
    return SourceError(f"{url} answers {reply.status}: {text}", hint=hint)


def _end_us(found: dict[str, Any]) -> int | None:
    try:
        return instant_us(found.get("stop_time"), "stop_time")
    except LineError:
        return None


def _key(found: dict[str, Any]) -> str:
    """The id and the end of a record, by which two answers are compared."""
    return msgspec.json.encode([str(found.get("record_id")), str(found.get("stop_time"))]).decode()
