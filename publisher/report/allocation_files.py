"""All allocations of a site: those of the configuration, and of the files that it names.

A CSV file has a row for each. A table of `sacctmgr` has the limits of associations in minutes of each resource: CPUs
and GPUs are read. The limit of an account is also that of the accounts below it, as Slurm applies it; hence a table
without the column of parents is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from publisher.config.allocations import Allocation, AllocationFile, overlap_of
from publisher.config.schema import Config
from publisher.errors import ConfigError
from publisher.report.settings_csv import refused, rows
from publisher.text import counted, iso

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


def _of_csv(file: AllocationFile) -> Iterator[Allocation]:
    times = {"since": iso(file.since), "until": iso(file.until)}
    for line, cells in rows(file.path, _KEY):
        if unknown := sorted(cells.keys() - _COLUMNS):
            hint = f"Columns are {', '.join(sorted(_COLUMNS))}"
            raise ConfigError(f"{file.path} has an unknown column {unknown[0]!r}", key=_KEY, hint=hint)
        given: dict[str, Any] = {name: value for name, value in times.items() if value is not None}
        yield _allocation(file, line, given | {name: cell for name, cell in cells.items() if cell})


def _of_sacctmgr(file: AllocationFile, notes: list[str]) -> Iterator[Allocation]:
    hint = f"Save what `{_COMMAND}` prints"
    table = [*rows(file.path, _KEY, needed=_OF_ASSOCIATIONS, hint=hint, delimiter="|")]
    parent = next((name for name in _PARENT if table and name in table[0][1]), "")
    if table and not parent:
        raise ConfigError(f"{file.path} has no column {_PARENT[0]}", key=_KEY, hint=hint)
    below: dict[tuple[str, str], list[str]] = {}
    for _line, cells in table:
        if not cells["User"] and cells[parent]:
            below.setdefault((cells["Cluster"], cells[parent]), []).append(cells["Account"])
    not_read: dict[str, int] = {}
    for line, cells in table:
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
                raise refused(file.path, line, f"{resource}={minutes} is not a number of minutes", _KEY)
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
        raise refused(file.path, line, f"{where}{first['msg'].removeprefix('Value error, ')}", _KEY) from None
