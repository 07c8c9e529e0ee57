"""A double of AUDITOR on loopback, which keeps records in memory; written from the facts on AUDITOR.

It stores an array whole or not at all, keeps the first record of each id, changes only ends, and gives records as a
stream of JSON objects by end.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from formats.text import date_time
from publisher.testing.services import HttpDouble, HttpRequest

MOST_BYTES: Final = 2 << 20
EXISTS: Final = "RECORD_EXISTS"


class AuditorDouble(HttpDouble):
    """See the module. `rows`: its records by id."""

    refusal = (400, "Json deserialize error: refused")

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, dict[str, Any]] = {}
        self.shortened: Callable[[list[str]], list[str]] = lambda stream: stream
        """What is left of a stream that its database ends early."""
        self.is_failing = False
        """Whether it was told to fail at requests."""
        self.ignores_repeats = False
        """Its option `ignore_record_exists_error`."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {"type": "auditor", "url": self.url}

    def content(self) -> Iterable[tuple[str, Any]]:
        """Its records."""
        return self.rows.items()

    def fail(self, faults: Sequence[str]) -> None:
        """See `publisher.testing.Fails`."""
        self.is_failing = bool(faults)
        super().fail(faults)

    def alter(self, key: str) -> None:
        """Change a value, another one in another history."""
        row = copy.deepcopy(self.rows[key])
        match len(self.requests) % 5:
            case 0:
                row["components"][0]["amount"] += 1
            case 1:
                row["components"][0]["scores"][0]["value"] += 0.001
            case 2:
                row["meta"]["subject"] = ["/DC=org/CN=Eve"]
            case 3:
                row["start_time"] = "2026-09-30T00:00:00Z"
            case _:
                row["stop_time"] = date_time(seconds(row["stop_time"]) + 1)
        self.rows[key] = row

    def remove(self, key: str) -> None:
        """Remove a record."""
        del self.rows[key]

    def answer(self, request: HttpRequest) -> tuple[int, str]:
        """What the service does."""
        if len(request.body) > MOST_BYTES:
            return 413, "larger than allowed"
        if request.method == "GET":
            return self.query(request.query) if request.path == "/records" else (200, "")
        content = json.loads(request.body)
        records = content if request.path == "/records" else [content]
        problem = next(filter(None, map(_problem, records)), "")
        if problem:
            return 400, f"Json deserialize error: {problem}"
        return self.update(content) if request.method == "PUT" else self.add(records)

    def add(self, records: list[dict[str, Any]]) -> tuple[int, str]:
        """Add records, all or none."""
        ids = [record["record_id"] for record in records]
        if len(set(ids)) < len(ids) or self.rows.keys() & set(ids):
            warning = json.dumps({"warning": "One or more records already exist, but the error was ignored"})
            return (200, warning) if self.ignores_repeats else (500, EXISTS)
        self.rows |= dict(zip(ids, records, strict=True))
        return 200, ""

    def update(self, record: dict[str, Any]) -> tuple[int, str]:
        """Change the end of a record."""
        if record["record_id"] not in self.rows:
            return 404, "Updating unknown record ID not possible."
        self.rows[record["record_id"]] |= {"stop_time": record["stop_time"]}
        return 200, ""

    def query(self, query: str) -> tuple[int, str]:
        """Those records that meet a query, as a stream."""
        found = list(self.rows.values())
        order = ""
        for part in filter(None, query.split("&")):
            name, value = part.partition("=")[0], unquote(part.partition("=")[2])
            if name in {"stop_time[gte]", "stop_time[lt]"}:
                is_lower = name.endswith("[gte]")
                bound = seconds(value)
                found = [
                    each for each in found if each["stop_time"] and (seconds(each["stop_time"]) >= bound) == is_lower
                ]
            elif name == "runtime[gt]":
                found = [each for each in found if (_run_time_s(each) or 0) > int(value)]
            elif meta := re.fullmatch(r"meta\[(\w+)\]\[c\]\[0\]", name):
                found = [each for each in found if value in each["meta"].get(meta[1], ())]
            elif name == "record_id":
                found = [each for each in found if each["record_id"] == value]
            elif name in {"sort_by[asc]", "sort_by[desc]"} and value == "stop_time":
                order = name
            elif name != "limit":
                return 400, json.dumps({"error": f"unknown field `{name}`"})
        found.sort(key=lambda each: (each["stop_time"] or "~", each["record_id"]), reverse=order == "sort_by[desc]")
        return 200, "".join(self.shortened([json.dumps(self._given(each)) for each in found]))

    @staticmethod
    def _given(record: dict[str, Any]) -> dict[str, Any]:
        """A record as it is given, with the run time."""
        return {**record, "runtime": _run_time_s(record)}


def _run_time_s(record: dict[str, Any]) -> int | None:
    ends = record["stop_time"]
    return None if ends is None else seconds(ends) - seconds(record["start_time"])


def seconds(time: str) -> int:
    """Epoch seconds of a time."""
    return int(datetime.fromisoformat(time).astimezone(UTC).timestamp())


def _problem(record: dict[str, Any]) -> str:
    """Why a record is not accepted."""
    texts = [record["record_id"], *record["meta"], *(text for texts in record["meta"].values() for text in texts)]
    for component in record["components"]:
        texts += [component["name"], *(score["name"] for score in component["scores"])]
        if not isinstance(component["amount"], int) or not 0 <= component["amount"] < 2**63:
            return "amount"
    if any(not text.strip() or len(text) > 256 or "\0" in text for text in texts):
        return "text"
    times = [record["start_time"], record["stop_time"]]
    if not all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times):
        return "time"
    return ""
