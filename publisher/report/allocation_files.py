"""All allocations of a site: those of the configuration, and of the files that it names.

A CSV file has a row for each. A table of `sacctmgr` has the limits of associations in minutes of each resource: CPUs
and GPUs are read. The limit of an account is also that of the accounts below it, as Slurm applies it; hence a table
without the column of parents is refused.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import ValidationError

from publisher.config.allocations import Allocation, AllocationFile, overlap_of
from publisher.config.schema import Config
from publisher.errors import ConfigError
from publisher.text import counted, iso, problem_text

_KEY: Final = "allocation_files"
_COLUMNS: Final = frozenset(Allocation.model_fields) - {"subaccounts"}
_PARENT: Final = ("ParentName", "Par Name")
_OF_ASSOCIATIONS: Final = ("Cluster", "Account", "User", "Partition", "GrpTRESMins")
_RESOURCES: Final = {"cpu": "cores", "gres/gpu": "gpus"}
_MINUTES: Final = Decimal(60)
_NANO: Final = Decimal("1e-9")
_COMMAND: Final = "sacctmgr -P show assoc format=Cluster,Account,User,Partition,ParentName,GrpTRESMins"


def all_allocations(config: Config) -> tuple[tuple[Allocation, ...], tuple[str, ...]]:
    """The allocations, and notes on what of the files was not read. Raises `ConfigError`."""
    allocations = [*config.allocations]
    notes: list[str] = []
    for file in config.allocation_files:
        allocations += _of_csv(file) if file.type == "csv" else _of_sacctmgr(file, notes)
    overlap = overlap_of(allocations)
    if overlap is not None:
        raise ConfigError(overlap, key="allocations")
    return tuple(allocations), tuple(notes)


def _rows(file: AllocationFile, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The cells of each row by their columns, and its line. Raises `ConfigError`."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    try:
        with file.path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=delimiter, quoting=quoting)
            heading = [name.strip() for name in next(rows, [])]
            for row in rows:
                cells = [cell.strip() for cell in row]
                if len(cells) > len(heading):
                    raise _refused(file, rows.line_num, "it has more cells than the first line has columns")
                if any(cells):
                    yield rows.line_num, dict.fromkeys(heading, "") | dict(zip(heading, cells, strict=False))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file.path} cannot be read: {problem_text(error)}", key=_KEY) from error


def _of_csv(file: AllocationFile) -> Iterator[Allocation]:
    times = {"since": iso(file.since), "until": iso(file.until)}
    for line, cells in _rows(file, ","):
        if unknown := sorted(cells.keys() - _COLUMNS):
            hint = f"Columns are {', '.join(sorted(_COLUMNS))}"
            raise ConfigError(f"{file.path} has an unknown column {unknown[0]!r}", key=_KEY, hint=hint)
        given: dict[str, Any] = {name: value for name, value in times.items() if value is not None}
        yield _allocation(file, line, given | {name: cell for name, cell in cells.items() if cell})


def _of_sacctmgr(file: AllocationFile, notes: list[str]) -> Iterator[Allocation]:
    rows = [*_rows(file, "|")]
    parent = next((name for name in _PARENT if rows and name in rows[0][1]), _PARENT[0])
    if missing := [name for name in (*_OF_ASSOCIATIONS, parent) if rows and name not in rows[0][1]]:
        raise ConfigError(f"{file.path} has no column {missing[0]}", key=_KEY, hint=f"Save what `{_COMMAND}` prints")
    below: dict[tuple[str, str], list[str]] = {}
    for _line, cells in rows:
        if not cells["User"] and cells[parent]:
            below.setdefault((cells["Cluster"], cells[parent]), []).append(cells["Account"])
    not_read: dict[str, int] = {}
    for line, cells in rows:
        limits = [word.partition("=") for word in cells["GrpTRESMins"].split(",") if word]
        holder = {"cluster": cells["Cluster"], "account": cells["Account"]}
        if cells["User"]:
            holder["user"] = cells["User"]
        for resource, _equals, minutes in limits:
            if resource not in _RESOURCES or cells["Partition"]:
                what = "of a partition" if cells["Partition"] else f"of {resource}"
                not_read[what] = not_read.get(what, 0) + 1
                continue
            if not minutes.isdecimal():
                raise _refused(file, line, f"{resource}={minutes} is not a number of minutes")
            words = {
                "name": " / ".join([holder["account"], *([holder["user"]] if "user" in holder else [])]),
                "resource": _RESOURCES[resource],
                "amount": (Decimal(minutes) / _MINUTES).quantize(_NANO),
                "since": iso(file.since),
                "until": iso(file.until),
                "subaccounts": () if cells["User"] else tuple(_all_below(below, cells["Cluster"], cells["Account"])),
            }
            yield _allocation(file, line, holder | words)
    notes += [
        f"Not read of {file.path.name}: {counted(count, 'limit')} {what}." for what, count in sorted(not_read.items())
    ]


def _all_below(below: Mapping[tuple[str, str], list[str]], cluster: str, account: str) -> list[str]:
    """The accounts below an account, at any depth."""
    names: list[str] = []
    rest = [account]
    while rest:
        children = [one for one in below.get((cluster, rest.pop()), ()) if one not in names and one != account]
        names += children
        rest += children
    return names


def _allocation(file: AllocationFile, line: int, cells: Mapping[str, Any]) -> Allocation:
    words = [cells[key] for key in ("project", "account", "user") if key in cells]
    try:
        return Allocation.model_validate({"name": " / ".join(words) or "?", **cells})
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise _refused(file, line, f"{where}{first['msg'].removeprefix('Value error, ')}") from None


def _refused(file: AllocationFile, line: int, problem: str) -> ConfigError:
    return ConfigError(f"{file.path}, line {line}: {problem}", key=_KEY)
