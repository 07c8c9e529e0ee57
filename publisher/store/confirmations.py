"""Confirmations: deliveries and groups that `reconcile` saw at the service, as they were sent.

Only what is accepted can be confirmed. Whatever takes a delivery out of that state takes its confirmation back, in the
same transaction, and the counter that `status` reads follows the rows that were really touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, literal_column, null, update

from publisher.store import counters, dialect
from publisher.store.states import State
from publisher.store.tables import deliveries, groups

_one: Final = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.run_id == bindparam("run"))
_ACCEPTED: Final[ColumnElement[int]] = literal_column(str(int(State.ACCEPTED)))
_confirm: Final = dialect.Bulk(
    update(deliveries)
    .where(_one, deliveries.c.state == _ACCEPTED, deliveries.c.confirmed_at.is_(None))
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", "target", "run"),
)
_withdraw: Final = dialect.Bulk(
    update(deliveries).where(_one, deliveries.c.confirmed_at.is_not(None)).values(confirmed_at=null()),
    ("target", "run"),
)


def confirm(connection: Connection, target_id: int, run_ids: Iterable[int], now: int) -> int:
    """Confirm deliveries that are accepted, and were not confirmed before; gives how many."""
    confirmed = _confirm.run(connection, [(now, target_id, run_id) for run_id in run_ids])
    counters.add_confirmed(connection, target_id, confirmed)
    return confirmed


def withdraw(connection: Connection, target_id: int, run_ids: Iterable[int]) -> int:
    """Take back the confirmations of these runs' deliveries; gives how many there were."""
    withdrawn = _withdraw.run(connection, [(target_id, run_id) for run_id in run_ids])
    counters.add_confirmed(connection, target_id, -withdrawn)
    return withdrawn


def withdraw_where(connection: Connection, target_id: int, chosen: ColumnElement[bool]) -> int:
    """Take back the confirmations of the deliveries of a target for which a condition holds; gives how many."""
    withdrawn = connection.execute(
        update(deliveries)
        .where(deliveries.c.target_id == target_id, chosen, deliveries.c.confirmed_at.is_not(None))
        .values(confirmed_at=null())
    ).rowcount
    counters.add_confirmed(connection, target_id, -withdrawn)
    return withdrawn


def confirm_groups(
    connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str], now: int | None
) -> None:
    """Confirm groups of a month by their keys, where they are accepted; with `now` None take it back."""
    rows = [(now, target_id, kind, month, key, int(State.ACCEPTED)) for key in keys]
    _confirm_groups.run(connection, rows)


_confirm_groups: Final = dialect.Bulk(
    update(groups)
    .where(
        groups.c.target_id == bindparam("target"),
        groups.c.kind == bindparam("of_kind"),
        groups.c.month == bindparam("of_month"),
        groups.c.key == bindparam("of_key"),
        groups.c.state == bindparam("before"),
    )
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", "target", "of_kind", "of_month", "of_key", "before"),
)
