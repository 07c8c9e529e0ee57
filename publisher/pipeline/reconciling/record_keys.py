"""The id under which a service knows a record: that which was rendered, or for APEL's job records their key there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from formats import fit
from formats.apel_job import read_job
from formats.apel_text import parse
from formats.record import CannotRenderError
from formats.rules import CarRules, SgasRules, TextRule
from formats.view import View
from publisher.config import Config, Target
from publisher.forms import record_format
from publisher.pipeline.demand import Demand
from publisher.store import runs
from publisher.store.database import Store
from publisher.store.sent import KEPT_AS, Sent

_RULES: Final[dict[str, TextRule]] = {"ogf-ur": SgasRules.RECORD_ID, "emi-car": CarRules.RECORD_ID}


class RecordKeys:
    """The ids of runs in the records of one target."""

    def __init__(self, store: Store, config: Config, settings: Target, view: View) -> None:
        self._store = store
        self._settings = settings
        self._view = view
        self._rule = _RULES.get(settings.records)
        self._demand = Demand(config, settings)

    def of(self, found: Sequence[Sent]) -> dict[int, str]:
        """Ids by run id; runs that cannot be rendered any more are left out."""
        if self._rule is None:
            return self._rendered([run.run_id for run in found])
        keys = {}
        for run in found:
            try:
                keys[run.run_id] = fit.token(self._rule, self._view.record_id_prefix + run.record_id, [])[0]
            except CannotRenderError:
                continue
        return keys

    def _rendered(self, run_ids: Sequence[int]) -> dict[int, str]:
        form = record_format(self._settings.records, self._view)
        keys = {}
        with self._store.read() as connection:
            stored = runs.by_ids(connection, run_ids)
        for run in stored:
            try:
                rendered = form.record(self._demand.meet(run), run.stored_at)
            except CannotRenderError:
                continue
            if rendered.record_id:
                keys[run.run_id] = rendered.record_id
            elif self._settings.records == "apel-job":
                (record,) = parse(form.message([rendered.body]).decode()).records
                keys[run.run_id] = read_job(record).record_id
        return keys


def kept_as(run: Sent) -> str | None:
    """The other id under which the service keeps a record, where it said so."""
    if run.reason is not None and run.reason.startswith(KEPT_AS):
        return run.reason.removeprefix(KEPT_AS)
    return None
