"""The usage that is charged: summed by what makes an item of a statement, or of each run, for closed months."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, TypeAlias, get_args

import numpy as np

from formats.job import Status
from publisher.config.reports import Charged, Charges, Factor, Price, hours_s
from publisher.report.calendar import zone_of
from publisher.report.column_files import RUN_ID
from publisher.report.energy import COLUMNS as ENERGY_COLUMNS
from publisher.report.energy import define_energy
from publisher.report.hours_of_day import Hours, HoursOfDay
from publisher.report.integers import BOUND, UNKNOWN, Ints, distinct, sum_by
from publisher.report.inventory import Inventory
from publisher.report.matching import Computed, Matching, RunBatch, columns_of, computed, summed
from publisher.report.placing import REQUIRED, Placing
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.closed import PriceList
from publisher.report.statements.items import FACTOR_KEYS, Used
from publisher.report.tables import EntryReading

_LOST: Final[Status] = "lost"
_USED_MJ: Final = "used_mj"
_ENERGY: Final = f"(SELECT *, CAST(coalesce(measured_mj, modelled_mj) AS BIGINT) AS {_USED_MJ} FROM energy)"  # noqa: S608 - names of ours
"""Both are below 2**61."""


RunSink: TypeAlias = Callable[[Ints, Ints | list[int], Ints, Sequence[Used | None], Sequence[str]], None]
"""Takes the usage of each of some runs, by id, which is of one of some kinds; key and user of each kind. A run may come
several times; a kind without a price has no key."""


def charged_usage(
    context: ReportContext, request: ReportRequest, price_list: PriceList, by: str, resource: Charged
) -> Computed[ChargedUsage]:  # fmt: skip
    """The usage of a resource by the runs of a request. A cluster does not compute energy: its archive is read here."""
    reading = EntryReading(columns_of(request, *_columns(price_list.charges, resource, by)))
    part = partial(_charged, price_list=price_list, by=by, resource=resource)
    return (computed if resource == "energy" else summed)(context, request, reading, "ended", part)


class ChargedUsage:
    """The usage of some runs by the keys of items: `publisher.report.dask.PartialReport`."""

    def __init__(self) -> None:
        self.usage: Counter[Used] = Counter()
        """Amounts times milliseconds; of energy, millijoules times thousandths of the PUE."""
        self.users: Counter[tuple[Used, str]] = Counter()
        """The same by user."""
        self.unpriced: Counter[tuple[str, str, str]] = Counter()
        """Usage without a price, by resource, type of nodes, and queue."""
        self.lost_usage: Counter[Used] = Counter()
        """The part of `usage` that is of lost runs."""
        self.lost_runs: Counter[tuple[str, str]] = Counter()
        """Lost runs that held some of a resource, or whose energy is known and has a price, by payer and resource."""
        self.energy_unknown = 0
        """Runs whose energy is unknown."""

    def add(self, other: ChargedUsage) -> None:
        """Add the usage of other runs."""
        self.usage.update(other.usage)
        self.users.update(other.users)
        self.unpriced.update(other.unpriced)
        self.lost_usage.update(other.lost_usage)
        self.lost_runs.update(other.lost_runs)
        self.energy_unknown += other.energy_unknown

    def use(self, key: Used | tuple[str, str, str], usage: int, words: Mapping[str, str]) -> None:
        """Add usage of runs with these words."""
        if not isinstance(key, Used):
            self.unpriced[key] += usage
            return
        self.usage[key] += usage
        self.users[key, words["user"] or UNKNOWN_NAME] += usage
        if words["status"] == _LOST:
            self.lost_usage[key] += usage


def charge_runs(matching: Matching, price_list: PriceList, by: str, sink: RunSink) -> None:
    """Have the usage of each matching run taken by `sink`, of all resources."""
    for resource in priced(price_list.charges):
        _charged(matching, price_list=price_list, by=by, resource=resource, sink=sink)


def charged_columns(settings: Charges, by: str) -> frozenset[str]:
    """The columns that `charge_runs` needs."""
    return frozenset({RUN_ID}).union(*(_columns(settings, resource, by) for resource in priced(settings)))


def priced(settings: Charges) -> list[Charged]:
    """The resources that have a price."""
    return [resource for resource in get_args(Charged) if any(price.resource == resource for price in settings.prices)]


def _charged(
    matching: Matching, *, price_list: PriceList, by: str, resource: Charged, sink: RunSink | None = None
) -> ChargedUsage:  # fmt: skip
    """The usage of a resource by the matching runs. Raises `ConfigError`."""
    charging = _Charging(price_list, by, resource, sink)
    columns, runs = _columns(price_list.charges, resource, by), "matching"
    if resource == "energy":
        define_energy(matching, price_list.energy, price_list.nodes)
        columns, runs = frozenset({"start", "stop", _USED_MJ, *_words(price_list.charges, by)}), _ENERGY
    if sink is not None:
        columns |= {RUN_ID}
    for batch in matching.batches(columns, runs):
        charging.add(batch)
    return charging.found


def _columns(settings: Charges, resource: Charged, by: str) -> frozenset[str]:
    """The columns of `entries` that the usage of a resource needs."""
    needed = {*ENERGY_COLUMNS, "start", "stop"} if resource == "energy" else REQUIRED[resource]
    return frozenset({*needed, "wall_ms", *_words(settings, by)})


def _words(settings: Charges, by: str) -> tuple[str, ...]:
    """The words of a run on which its charge depends: few kinds of runs differ in them."""
    rules = (*settings.group_factors, *settings.job_factors)
    of_factors = [key for key in FACTOR_KEYS if any(getattr(rule, key) is not None for rule in rules)]
    return tuple(dict.fromkeys((by, "cluster", "queue", "status", "user", *of_factors)))


class _Charging:
    """Sums up the usage of a resource by payer, price, and factors."""

    def __init__(self, price_list: PriceList, by: str, resource: Charged, sink: RunSink | None) -> None:
        settings = price_list.charges
        self._sink = sink
        self._resource: Charged = resource
        self._by = by
        self._pue_thousandths = price_list.energy.pue_thousandths
        self._inventory = Inventory(price_list.nodes)
        self._placing = None if resource == "energy" else Placing(self._inventory, resource)
        """None: what the resource is used on has no part in its charge."""
        hours = [
            None if price.hours is None or self._placing is None else Hours(*hours_s(price.hours))
            for price in settings.prices
        ]
        self._hours = HoursOfDay(hours, zone_of(settings.timezone))
        """The prices that apply in each part of the day."""
        self._names = _words(settings, by)
        self._item_keys = _ItemKeys(settings, by, resource, self._names)
        self._classes: dict[tuple[str, str], int] = {}
        """The numbers of the classes of nodes, by cluster and type."""
        self._keys: dict[tuple[frozenset[int], tuple[str, str], tuple[str, ...]], Used | tuple[str, str, str]] = {}
        self.found = ChargedUsage()

    def add(self, batch: RunBatch) -> None:
        """Add the runs of a batch."""
        row, class_of, amount, times = self._entries(batch)
        if not len(row):
            return
        columns = [batch.words(name) for name in self._names]
        distinct_kinds, inverse = distinct([class_of, *(column.codes[row] for column in columns)])
        classes = list(self._classes)
        kinds = [
            (classes[number], tuple(column.words[code] for column, code in zip(columns, codes, strict=True)))
            for number, *codes in distinct_kinds.tolist()
        ]
        users = [words[self._names.index("user")] or UNKNOWN_NAME for _, words in kinds]
        charged = row
        parts = self._hours.spread(batch.numbers("start"), batch.numbers("stop"), times)
        for part, of_part in zip(self._hours.parts, parts, strict=True):
            products = _products(amount, of_part[row])
            sums = sum_by(inverse, products, len(distinct_kinds))
            keys: list[Used | None] = [None] * len(kinds)
            for place, ((nodes, words), usage) in enumerate(zip(kinds, sums, strict=True)):
                if not usage and len(parts) > 1:
                    continue
                key = self._keys.get((part, nodes, words))
                if key is None:
                    key = self._keys[part, nodes, words] = self._item_keys.of(part, nodes, words)
                keys[place] = key if isinstance(key, Used) else None
                if usage or self._placing is not None:  # no energy is no item
                    self.found.use(key, usage, dict(zip(self._names, words, strict=True)))
            if self._placing is None:
                charged = row[np.array([key is not None for key in keys], np.bool_)[inverse]]
            if self._sink is not None:
                self._sink(batch.numbers(RUN_ID)[row], products, inverse, keys, users)
        self._count_lost(batch, np.unique(charged))

    def _entries(self, batch: RunBatch) -> tuple[Ints, Ints, Ints, Ints]:
        """What the runs of a batch used: row, class of nodes, and amount of each entry; by row, what amounts are
        multiplied by, which are milliseconds, or for energy the thousandths of the PUE."""
        if self._placing is None:
            used_mj = batch.numbers(_USED_MJ)
            row = np.flatnonzero(used_mj != UNKNOWN)
            self.found.energy_unknown += batch.rows - len(row)
            no_class = np.full(len(row), self._classes.setdefault(("", ""), 0))
            return row, no_class, used_mj[row], np.full(batch.rows, self._pue_thousandths)
        placed = self._placing.once(batch)
        used = placed.amount > 0
        of_nodes = [
            self._classes.setdefault((one.cluster, one.type), len(self._classes)) for one in self._inventory.nodes
        ]
        class_of = np.array(of_nodes, np.int64)[placed.node[used]]
        return placed.row[used], class_of, placed.amount[used], np.maximum(batch.numbers("wall_ms"), 0)

    def _count_lost(self, batch: RunBatch, rows: Ints) -> None:
        """Count the lost runs among these rows by payer."""
        status, payers = batch.words("status"), batch.words(self._by)
        lost = np.array([word == _LOST for word in status.words], np.bool_)
        for code in payers.codes[rows[lost[status.codes[rows]]]].tolist():
            self.found.lost_runs[payers.words[code] or UNKNOWN_NAME, self._resource] += 1


class _ItemKeys:
    """The keys of items of a resource, by the words of a run."""

    def __init__(self, settings: Charges, by: str, resource: Charged, names: Sequence[str]) -> None:
        self._settings = settings
        self._by = by
        self._resource: Charged = resource
        self._names = names

    def of(
        self, part: frozenset[int], nodes: tuple[str, str], kind: tuple[str, ...]
    ) -> Used | tuple[str, str, str]:  # fmt: skip
        """The key of usage of this kind on a class of nodes in a part of the day, in which the prices `part` apply."""
        cluster, node_type = nodes
        words = dict(zip(self._names, kind, strict=True))
        where = {"cluster": cluster or words["cluster"], "type": node_type, "queue": words["queue"]}
        price = _first(
            self._settings.prices,
            lambda one: one.resource == self._resource and _match(one, ("cluster", "type", "queue"), where),
            among=part,
        )
        if price < 0:
            return (self._resource, node_type, words["queue"])
        factors = (
            _first(listed, lambda one: _match(one, FACTOR_KEYS, words))
            for listed in (self._settings.group_factors, self._settings.job_factors)
        )
        return Used(words[self._by] or UNKNOWN_NAME, self._resource, price, *factors)


def _first(rules: tuple[Any, ...], matches: Callable[[Any], bool], among: frozenset[int] | None = None) -> int:
    """The place of the first matching rule `among` some places (None: all); -1 if none matches."""
    places = (place for place in range(len(rules)) if among is None or place in among)
    return next((place for place in places if matches(rules[place])), -1)


def _match(rule: Price | Factor, keys: tuple[str, ...], words: dict[str, str]) -> bool:
    given = ((key, getattr(rule, key)) for key in keys)
    return all(
        any(fnmatchcase(words[key], pattern) for pattern in patterns) for key, patterns in given if patterns is not None
    )


def _products(amount: Ints, times: Ints) -> Ints | list[int]:
    """Amount times milliseconds or PUE, exact beyond 64 bits."""
    if int(amount.max()) * int(times.max()) < BOUND:
        return amount * np.maximum(times, 0)
    return [some * max(by, 0) for some, by in zip(amount.tolist(), times.tolist(), strict=True)]
