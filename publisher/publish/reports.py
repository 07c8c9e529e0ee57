"""reports: one for each whole period, sent when it is complete and again when a late job changed it.

A period is complete when it is over, every source was read beyond its end, and every source is known from its first
second on. Until it is over its runs wait and are not due; where it is not known whole they are held with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from formats.calendar import Period, month_of
from formats.registry import report_format
from formats.view import View
from formats.xml.text import LAST_INSTANT
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.messages.completeness import known_until
from publisher.messages.due import Planned
from publisher.messages.item import Mail
from publisher.messages.reports import ReportFold, ReportPart, owed_parts
from publisher.publish.context import Tools
from publisher.publish.group_sender import GroupSender
from publisher.publish.post import RetryBudget
from publisher.publish.snapshots import SnapshotSender
from publisher.store import groups
from publisher.store.database import Store
from publisher.targets.base import Target


class ReportMessages:
    """Messages of reports, for `GroupSender`: a report is a message of its own."""

    overhead_bytes = separator_bytes = 0

    def __init__(self, name: str, content_type: str) -> None:
        self.name = name
        self.content_type = content_type

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The one that there is."""
        (body,) = bodies
        return body


class ReportSender(SnapshotSender):
    """Sends the reports that one target is owed. Made for one run."""

    def __init__(
        self,
        store: Store,
        config: Config,
        target: Target,
        plan: TargetPlan,
        settings: TargetSettings,
        view: View,
        tools: Tools,
    ) -> None:
        super().__init__(store, config, target.name, plan.target_id, settings, tools)
        self._format = report_format(settings.records, view)
        self._limit_bytes = target.payload_limit_bytes()
        self._sender = GroupSender(
            store,
            target,
            plan.target_id,
            settings.model_copy(update={"batch_records": 1}),
            ReportMessages(self._format.name, self._format.content_type),
            groups.UTILIZATION,
            tools,
            RetryBudget(settings),
            self.sent,
        )

    def _send_changed(self) -> None:
        """Period by period, oldest first."""
        now = self._tools.clock()
        fold = ReportFold(
            self._store,
            self._config,
            self._settings,
            Planned(self._store, self._target_id),
            self._format,
            self._limit_bytes,
            now,
        )
        known = known_until(self._store, self._config, self._settings, now)
        over = min(now, known) if known is not None else None
        changed, marked = fold.changed()
        kept = dict(marked)
        for period in sorted(changed):
            why = self._why_not_now(period)
            if why is not None:
                self._hold((period.start, period.stop), why)
                kept.pop(month_of(period.start), None)
                changed.discard(period)
            elif over is None or period.stop > over:
                anew = month_of(period.start) in marked
                if not fold.reaches_back(period, anew=anew):
                    changed.discard(period)
        touched = fold.touched(changed)
        self._settle_unsent((), fold.held)
        for period in touched:
            if over is not None and period.stop <= over and self._why_not_whole(period) is None:
                self._send(period, fold.parts(period))
        fold.keep(now)
        self._unmark(kept)

    def _why_not_now(self, period: Period) -> str | None:
        """Why the runs of a period must be held."""
        if period.stop > LAST_INSTANT:
            return "it ended after the year 9999, which no report can be of"
        return self._why_not_whole(period)

    def _send(self, period: Period, parts: Sequence[ReportPart]) -> None:
        with self._store.read() as connection:
            known = groups.of_month(connection, self._target_id, groups.UTILIZATION, period.number)
        keys = {part.row.key for part in parts}
        elsewhere = [key for key in known if key not in keys]
        if elsewhere:  # cut otherwise, since the size of messages is another
            with self._store.write() as connection:
                groups.forget(connection, self._target_id, groups.UTILIZATION, period.number, elsewhere)
        owed = owed_parts(parts, known)
        sent = {part.row.key for part in owed}
        self._settle_unsent((part.members for part in parts if part.row.key not in sent), {})
        self._sender.send([self._mail(part) for part in owed])

    def _mail(self, part: ReportPart) -> Mail:
        latest = part.report.stop - 1 if len(part.members) else None
        return Mail(part.row, self._format.message(part.report), latest, part.members)
