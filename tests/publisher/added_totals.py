"""A format of totals as an add-on brings it: GPU hours by account and user, exact decimals, folded from records.

Not from columns: the store has none for GPUs, and no account in the class of a run of a grid user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from formats.base import Format, Rendered
from formats.calendar import MonthKey, month_of
from formats.columns import TotalColumns, comparable
from formats.identity import DIGEST_BYTES
from formats.job import Job
from formats.rule_codes import CannotRenderError, RuleCode
from formats.totals import NamedPersons, TotalsKind, TotalUsage
from formats.view import View

GPU_MS_AN_HOUR = 3_600_000


class AccountKey(MonthKey, frozen=True, order=True):
    """An account in a month."""

    account: str


class AccountTotal(msgspec.Struct, frozen=True):
    """An account in a month: milliseconds of GPUs by user, jobs, and wall and CPU time."""

    key: AccountKey
    gpu_ms: dict[str, int]
    jobs: int = 0
    latest: int | None = None
    wall_ms: int = 0
    cpu_ms: int = 0

    @property
    def spelling(self) -> AccountKey:
        """As the key."""
        return self.key

    @property
    def digest(self) -> bytes:
        """Of all that is sent."""
        return hashlib.blake2b(self.to_json(), digest_size=DIGEST_BYTES).digest()

    @property
    def zeroed(self) -> AccountTotal:
        """The users stay, each with 0.00: the service keeps the old value of a user who is not named."""
        return AccountTotal(self.key, dict.fromkeys(self.gpu_ms, 0))

    def plus(self, other: AccountTotal) -> AccountTotal:
        """Of both."""
        users = {
            user: self.gpu_ms.get(user, 0) + other.gpu_ms.get(user, 0) for user in sorted({*self.gpu_ms, *other.gpu_ms})
        }
        latest = max(self.latest or 0, other.latest or 0)
        jobs = self.jobs + other.jobs
        return AccountTotal(self.key, users, jobs, latest, self.wall_ms + other.wall_ms, self.cpu_ms + other.cpu_ms)

    def to_json(self) -> bytes:
        """For the store."""
        return msgspec.json.encode(self)


def _read_total(stored: bytes) -> AccountTotal:
    return msgspec.json.decode(stored, type=AccountTotal)


class AccountFold:
    """Adds up the runs of accounts."""

    def __init__(self, view: View) -> None:
        self._site = view.site
        self._totals: dict[AccountKey, AccountTotal] = {}

    def add(self, job: Job) -> AccountKey:
        """Hold a run without an account; fail for one without a wall time."""
        if job.account is None:
            raise CannotRenderError(RuleCode.ADD_ON, "account", text="a run needs an account")
        assert job.end is not None
        month = month_of(job.end)
        key = AccountKey(self._site, month.year, month.month, job.account)
        users = {job.user_dn or "": (job.gpus or 0) * job.wall_ms}  # type: ignore[operator]
        self.merge_group(AccountTotal(key, users, 1, job.end, job.wall_ms or 0, job.cpu_ms or 0))
        return key

    def add_alike(self, _facts: Job, _sums: object, /) -> AccountKey:
        """Never called: not from columns."""
        raise AssertionError

    def merge_group(self, total: AccountTotal, /) -> None:
        """Add one."""
        before = self._totals.get(total.key)
        self._totals[total.key] = total if before is None else before.plus(total)

    def groups(self) -> Iterator[AccountTotal]:
        """In order."""
        return (self._totals[key] for key in sorted(self._totals))


class GpuHours:
    """A list in JSON with an object for each account."""

    name, content_type = "gpu-hours", "application/json"
    overhead_bytes, separator_bytes = 2, 1

    def __init__(self, _view: View) -> None:
        pass

    def record(self, total: AccountTotal) -> Rendered:
        """Two decimals."""
        users = {user: str(Decimal(ms * 100 // GPU_MS_AN_HOUR) / 100) for user, ms in total.gpu_ms.items()}
        return Rendered(msgspec.json.encode({"total": msgspec.Raw(total.to_json()), "users": users}))

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The list."""
        return b"[" + b",".join(bodies) + b"]"


class AccountMessage(msgspec.Struct):
    """An account as sent, with the hours of its users."""

    total: AccountTotal
    users: dict[str, Decimal]


def accounts_of(payload: bytes) -> list[AccountMessage]:
    """The accounts of a message."""
    return msgspec.json.decode(payload, type=list[AccountMessage])


def _columns(total: AccountTotal) -> TotalColumns:
    fields = {"site": comparable(total.key.site), "account": comparable(total.key.account)}
    return TotalColumns(
        total.key.when, fields, total.jobs, total.wall_ms / 1000, total.cpu_ms / 1000, latest=total.latest
    )


def _renamed(total: AccountTotal, names: Collection[str], name: str) -> AccountTotal:
    users = {name if user.casefold() in names else user: ms for user, ms in total.gpu_ms.items()}
    return msgspec.structs.replace(total, gpu_ms=users)


def _following(before: AccountTotal, now: AccountTotal, _is_there: bool) -> AccountTotal:
    """With 0 for each user who is no longer in it."""
    return msgspec.structs.replace(now, gpu_ms=dict(sorted((dict.fromkeys(before.gpu_ms, 0) | now.gpu_ms).items())))


GPU_HOURS = Format(
    name="any",
    title="GPU hours by account",
    shape="totals",
    make=GpuHours,
    content_type="application/json",
    totals=TotalsKind(
        kind="any",
        fold=AccountFold,
        from_json=_read_total,
        from_columns=False,
        following=_following,
        persons=NamedPersons(
            spelled=lambda _view, name: name, names=lambda total: total.gpu_ms.keys(), renamed=_renamed
        ),
        usage=lambda total: TotalUsage(total.jobs, total.wall_ms, total.cpu_ms),
        read=lambda payload: [each.total for each in accounts_of(payload)],
        columns=_columns,
        dimensions=("site", "account"),
    ),
    dimensions=lambda job, view: {"site": comparable(view.site), "account": comparable(job.account)},
)


def _with_totals(**changes: Any) -> Format:
    assert GPU_HOURS.totals is not None
    return msgspec.structs.replace(GPU_HOURS, totals=msgspec.structs.replace(GPU_HOURS.totals, **changes))


FORGOTTEN = _with_totals(vanished="forgotten")
UNREADABLE = _with_totals(read=None)
SYNC_COUNTS = msgspec.structs.replace(GPU_HOURS, shape="sync")


def point_of(descriptor: str) -> str:
    """The entry point of a descriptor of this module."""
    return f"{__name__}:{descriptor}"


def newest(folder: Path) -> dict[str, AccountMessage]:
    """What a service has that reads the files of a directory in order, by account."""
    files = sorted(folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return {each.total.key.account: each for path in files for each in accounts_of(path.read_bytes())}
