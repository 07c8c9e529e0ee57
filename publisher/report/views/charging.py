"""The usage that is charged: summed by what makes an item of a statement, or of each run, for closed months."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Protocol, get_args

import numpy as np
import pyarrow as pa

from formats.job import Status
from publisher.config.reports import Charged, Charges, Factor, Price, hours_s
from publisher.report.calendar import zone_of
from publisher.report.column_files import RUN_ID
from publisher.report.energy import COLUMNS as ENERGY_COLUMNS
from publisher.report.energy import define_energy
from publisher.report.hours_of_day import Hours, HoursOfDay
from publisher.report.integers import Ints, distinct, sum_by
from publisher.report.inventory import Inventory
from publisher.report.matching import Matching, RunBatch, columns_of, computed, summed
from publisher.report.met import Met
from publisher.report.placing import REQUIRED, Placing
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.closed import PriceList
from publisher.report.statements.items import FACTOR_KEYS, Used
from publisher.report.tables import Reading
from publisher.report.view_option import Resource

_LOST: Final[Status] = "lost"


class RunSink(Protocol):
    """Takes the usage of each run."""

    def line_of(self, key: Used, user: str) -> tuple[int, bool]:
        """The number of a line, and whether its payer or this user is an erased person."""
        ...

    def add(
        self, runs: Ints, usage: Ints | list[int], kinds: Ints, keys: Sequence[Used | None], users: Sequence[str]
    ) -> None:
        """The usage of each of these runs, by id, which is of one of these kinds; key and user of each kind. A run may
        come several times; a kind without a price has no key."""
        ...

    def add_query(self, matching: Matching, query: str) -> None:
        """The rows of a query: id of a run, line, usage, and whether it is of an erased person."""
        ...


def charged_usage(
    context: ReportContext, request: ReportRequest, price_list: PriceList, by: str, resource: Charged
) -> ChargedUsage:  # fmt: skip
    """The usage of a resource by the runs of a request. A cluster does not compute energy: its archive is read here."""
    reading = Reading(columns_of(request, *_columns(price_list.charges, resource, by)))
    if resource == "energy":
        return computed(context, request, reading, "ended", partial(_charged_energy, price_list=price_list, by=by))
    part = partial(_charged, price_list=price_list, by=by, resource=resource)
    return summed(context, request, reading, "ended", part)


class ChargedUsage:
    """The usage of some runs by the keys of items: `publisher.report.dask.PartialReport`."""

    def __init__(self) -> None:
        self.usage: dict[Used, int] = {}
        self.users: dict[tuple[Used, str], int] = {}
        """The same by user."""
        self.unpriced: dict[tuple[str, str, str], int] = {}
        """Usage without a price, by resource, type of nodes, and queue."""
        self.lost_usage: dict[Used, int] = {}
        """The part of `usage` that is of lost runs."""
        self.lost_runs: dict[tuple[str, str], int] = {}
        """Lost runs that held some of a resource, by payer and resource."""
        self.energy_unknown = 0
        """Runs whose energy is unknown."""
        self.met = Met()

    def add(self, other: ChargedUsage) -> None:
        """Add the usage of other runs."""
        for key, amount in other.usage.items():
            self.add_amount(key, amount)
        for of_user, amount in other.users.items():
            self.users[of_user] = self.users.get(of_user, 0) + amount
        for kind, amount in other.unpriced.items():
            self.add_amount(kind, amount)
        for key, amount in other.lost_usage.items():
            self.lost_usage[key] = self.lost_usage.get(key, 0) + amount
        for held, runs in other.lost_runs.items():
            self.lost_runs[held] = self.lost_runs.get(held, 0) + runs
        self.energy_unknown += other.energy_unknown
        self.met.add(other.met)

    def use(self, key: Used | tuple[str, str, str], usage: int, words: Mapping[str, str], energy_runs: int = 0) -> None:
        """Add usage of runs with these words. `energy_runs`: how many, of energy, which has no batches to count in."""
        self.add_amount(key, usage)
        if not isinstance(key, Used):
            return
        user = words["user"] or UNKNOWN_NAME
        self.users[key, user] = self.users.get((key, user), 0) + usage
        if words["status"] == _LOST:
            self.lost_usage[key] = self.lost_usage.get(key, 0) + usage
            if energy_runs:
                held = (key.payer, key.resource)
                self.lost_runs[held] = self.lost_runs.get(held, 0) + energy_runs

    def add_amount(self, key: Used | tuple[str, str, str], amount: int) -> None:
        """Add an amount times milliseconds."""
        sums: dict[Any, int] = self.usage if isinstance(key, Used) else self.unpriced
        sums[key] = sums.get(key, 0) + amount


def charge_runs(matching: Matching, price_list: PriceList, by: str, sink: RunSink) -> None:
    """Have the usage of each matching run taken by `sink`, of all resources."""
    for resource in priced(price_list.charges):
        if resource == "energy":
            _charged_energy(matching, price_list=price_list, by=by, sink=sink)
        else:
            _charged(matching, price_list=price_list, by=by, resource=resource, sink=sink)


def charged_columns(settings: Charges, by: str) -> frozenset[str]:
    """The columns that `charge_runs` needs."""
    return frozenset({RUN_ID}).union(*(_columns(settings, resource, by) for resource in priced(settings)))


def priced(settings: Charges) -> list[Charged]:
    """The resources that have a price."""
    return [resource for resource in get_args(Charged) if any(price.resource == resource for price in settings.prices)]


def _charged_energy(
    matching: Matching, *, price_list: PriceList, by: str, sink: RunSink | None = None
) -> ChargedUsage:  # fmt: skip
    """The energy of the matching runs, with PUE."""
    define_energy(matching, price_list.energy, price_list.nodes)
    names = _words(price_list.charges, by)
    keys = _ItemKeys(price_list.charges, by, "energy", names)
    kinds: list[tuple[tuple[str | None, ...], Used, str]] = []
    charged = ChargedUsage()
    of_runs = ", ".join(f'"{name}"' for name in names)
    amounts = "sum(coalesce(measured_mj, modelled_mj)), count(*), count(coalesce(measured_mj, modelled_mj))"
    everywhere = frozenset(range(len(price_list.charges.prices)))
    for row in matching.rows(f"SELECT {of_runs}, {amounts} FROM energy GROUP BY ALL ORDER BY ALL"):  # noqa: S608 - names of ours
        *given, energy_mj, runs, known = row
        words = tuple(word or "" for word in given)
        charged.met.runs += runs
        charged.met.matched += runs
        charged.energy_unknown += runs - known
        usage = (energy_mj or 0) * price_list.energy.pue_thousandths
        if not usage:
            continue
        key = keys.of(everywhere, ("", ""), words)
        charged.use(key, usage, dict(zip(names, words, strict=True)), known)
        if isinstance(key, Used):
            kinds.append((tuple(given), key, words[names.index("user")] or UNKNOWN_NAME))
    if sink is not None and kinds:
        _give_energy(matching, price_list, names, kinds, sink)
    return charged


def _give_energy(
    matching: Matching, price_list: PriceList, names: Sequence[str],
    kinds: Sequence[tuple[tuple[str | None, ...], Used, str]], sink: RunSink,
) -> None:  # fmt: skip
    """Give the energy of each run, by the kinds of words."""
    lines, erased = zip(*(sink.line_of(key, user) for _, key, user in kinds), strict=True)
    words = {name: pa.array([given[place] for given, _, _ in kinds], pa.string()) for place, name in enumerate(names)}
    table = pa.table({**words, "line": pa.array(lines, pa.int32()), "erased": pa.array(erased, pa.bool_())})
    matching.tabulate("energy_lines", table, "the lines of each kind of run")
    same = " AND ".join(f'energy."{name}" IS NOT DISTINCT FROM energy_lines."{name}"' for name in names)
    usage = f"CAST(coalesce(measured_mj, modelled_mj) AS HUGEINT) * {price_list.energy.pue_thousandths}"
    sink.add_query(
        matching,
        f"SELECT {RUN_ID}, line, {usage} AS usage, erased FROM energy JOIN energy_lines ON {same} WHERE {usage} > 0",  # noqa: S608 - names and numbers of ours
    )


def _charged(
    matching: Matching, *, price_list: PriceList, by: str, resource: Resource, sink: RunSink | None = None
) -> ChargedUsage:  # fmt: skip
    """The usage of a resource by the matching runs."""
    charging = _Charging(price_list, by, resource, sink)
    columns = _columns(price_list.charges, resource, by) | ({RUN_ID} if sink is not None else frozenset())
    for batch in matching.batches(columns, charging.found.met):
        charging.add(batch)
    return charging.found


def _columns(settings: Charges, resource: Charged, by: str) -> frozenset[str]:
    needed = ENERGY_COLUMNS if resource == "energy" else REQUIRED[resource]
    return frozenset({*needed, "wall_ms", *_words(settings, by)})


def _words(settings: Charges, by: str) -> tuple[str, ...]:
    """The words of a run on which its charge depends: few kinds of runs differ in them."""
    rules = (*settings.group_factors, *settings.job_factors)
    of_factors = [key for key in FACTOR_KEYS if any(getattr(rule, key) is not None for rule in rules)]
    return tuple(dict.fromkeys((by, "cluster", "queue", "status", "user", *of_factors)))


class _Charging:
    """Sums up the usage of a resource by payer, price, and factors."""

    def __init__(self, price_list: PriceList, by: str, resource: Resource, sink: RunSink | None) -> None:
        settings = price_list.charges
        self._sink = sink
        self._resource: Charged = resource
        self._by = by
        self._inventory = Inventory(price_list.nodes)
        hours = [None if price.hours is None else Hours(*hours_s(price.hours)) for price in settings.prices]
        self._hours = HoursOfDay(hours, zone_of(settings.timezone))
        """The prices that apply in each part of the day."""
        self._placing = Placing(self._inventory, resource)
        self._names = _words(settings, by)
        self._item_keys = _ItemKeys(settings, by, resource, self._names)
        self._classes: dict[tuple[str, str], int] = {}
        """The numbers of the classes of nodes, by cluster and type."""
        self._keys: dict[tuple[frozenset[int], tuple[str, str], tuple[str, ...]], Used | tuple[str, str, str]] = {}
        self.found = ChargedUsage()

    def add(self, batch: RunBatch) -> None:
        """Add the runs of a batch."""
        placed = self._placing.once(batch)
        used = placed.amount > 0
        row, node, amount = placed.row[used], placed.node[used], placed.amount[used]
        if not len(row):
            return
        columns = [batch.words(name) for name in self._names]
        of_nodes = [
            self._classes.setdefault((one.cluster, one.type), len(self._classes)) for one in self._inventory.nodes
        ]
        class_of = np.array(of_nodes, np.int64)
        distinct_kinds, inverse = distinct([class_of[node], *(column.codes[row] for column in columns)])
        classes = list(self._classes)
        kinds = [
            (classes[number], tuple(column.words[code] for column, code in zip(columns, codes, strict=True)))
            for number, *codes in distinct_kinds.tolist()
        ]
        self._count_lost(batch, np.unique(row))
        wall_ms = np.maximum(batch.numbers("wall_ms"), 0)
        users = [words[self._names.index("user")] or UNKNOWN_NAME for _, words in kinds]
        parts = self._hours.spread(batch.numbers("start"), batch.numbers("stop"), wall_ms)
        for part, of_part in zip(self._hours.parts, parts, strict=True):
            products = _products(amount, of_part[row])
            sums = _sums(inverse, products, len(distinct_kinds))
            keys: list[Used | None] = [None] * len(kinds)
            for place, ((nodes, words), usage) in enumerate(zip(kinds, sums, strict=True)):
                if not usage and len(parts) > 1:
                    continue
                key = self._keys.get((part, nodes, words))
                if key is None:
                    key = self._keys[part, nodes, words] = self._item_keys.of(part, nodes, words)
                self.found.use(key, usage, dict(zip(self._names, words, strict=True)))
                keys[place] = key if isinstance(key, Used) else None
            if self._sink is not None:
                self._sink.add(batch.numbers(RUN_ID)[row], products, inverse, keys, users)

    def _count_lost(self, batch: RunBatch, rows: Ints) -> None:
        """Count the lost runs among these rows by payer."""
        status, payers = batch.words("status"), batch.words(self._by)
        lost = np.array([word == _LOST for word in status.words], np.bool_)
        for code in payers.codes[rows[lost[status.codes[rows]]]].tolist():
            held = (payers.words[code] or UNKNOWN_NAME, self._resource)
            self.found.lost_runs[held] = self.found.lost_runs.get(held, 0) + 1


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


def _products(amount: Ints, wall_ms: Ints) -> Ints | list[int]:
    """Amount times milliseconds, exact beyond 64 bits."""
    if int(amount.max()) * int(wall_ms.max()) < 1 << 62:
        return amount * np.maximum(wall_ms, 0)
    return [some * max(wall, 0) for some, wall in zip(amount.tolist(), wall_ms.tolist(), strict=True)]


def _sums(group: Ints, values: Ints | list[int], count: int) -> list[int]:
    if not isinstance(values, list):
        return sum_by(group, values, count)
    exact = [0] * count
    for place, value in zip(group.tolist(), values, strict=True):
        exact[place] += value
    return exact
