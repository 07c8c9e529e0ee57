"""Totals of erased persons: one that a service has under a name cannot be replaced under the pseudonym.

Under the pseudonym it would be counted in addition to the one under the name. So the service's summary stays as it is,
and a changed one is held with the reason.
"""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, select

from formats.calendar import Month
from formats.rule_codes import Reason
from formats.totals import TotalsKind
from formats.view import View
from publisher.reason import ReasonCode
from publisher.store.admin import erase
from publisher.store.schema import groups
from publisher.store.stored_json import read_with
from publisher.text import past

_NEVER: Final = -(2**62)
_NOT_ERASED: Final = -(2**63)

HELD: Final = Reason.of(ReasonCode.PERSON_ERASED)


def fixed(
    connection: Connection, target_id: int, totals: TotalsKind | None, month: Month, view: View, now: int
) -> frozenset[str]:
    """The keys of the totals of a month that the service has under the name of a person who was erased later.

    Includes totals that were last sent after `now`, by a wrong clock: they may have been sent before the erasure.
    """
    if totals is None or totals.persons is None:
        return frozenset()
    persons = totals.persons
    # Totals that were sent with names stay where names are withheld now; those without names are of nobody.
    views = (msgspec.structs.replace(view, dn="send"), *([view] if view.dn == "hash" else []))
    since = {
        # Receivers compare names without case: in another spelling, the total under the name would not be recognised.
        persons.spelled(each, row.pseudonym).casefold(): row.erased_at
        for row in erase.rows(connection)
        for each in views
    }
    if not since:
        return frozenset()

    def erased_at(key: str, body: bytes) -> int:
        total = read_with(totals.from_json, bytes(body), f"the group {key}")
        return max((since.get(name.casefold(), _NOT_ERASED) for name in persons.names(total)), default=_NOT_ERASED)

    query = select(groups.c.key, groups.c.body, groups.c.changed_at).where(
        groups.c.target_id == target_id, groups.c.kind == totals.kind, groups.c.month == month.number
    )
    return frozenset(
        key
        for key, body, changed_at in connection.execute(query)
        if (past(changed_at, now) or _NEVER) <= erased_at(key, body)
    )
