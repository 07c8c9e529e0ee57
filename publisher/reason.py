"""Why a delivery is in its state: codes with parameters, as they are stored, and the sentences that people are shown.

What `formats` says of a record that it cannot render is a reason too (`rule_codes.RuleCode`). A service's answer,
the text of a waiver, and what went wrong in an add-on are the words of others: parameters, never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from formats.rule_codes import RULE_SENTENCES, Reason
from publisher.text import utf8


class ReasonCode(StrEnum):
    """Stored as its text; the texts are part of the store's format and never change their meaning."""

    ADD_ON_FAILED = "add-on-failed"
    AFTER_YEAR_9999 = "after-year-9999"
    ASSUMED = "assumed"
    """Accepted, and never sent from here: an earlier publisher delivered it, as far as its state, or somebody, says."""
    CHANGED_AFTER_DELIVERY = "changed-after-delivery"
    CHANGED_AFTER_PURGE = "changed-after-purge"
    FILE_DISAPPEARED = "file-disappeared"
    KEPT_UNDER_OTHER_ID = "kept-under-other-id"
    """Accepted: the service knows the record by another id than it was sent with."""
    KEY_CHANGED = "key-changed"
    MONTH_PURGED = "month-purged"
    NOT_DUE = "not-due"
    NOT_IN_ANSWER = "not-in-answer"
    NO_GRID_LOG_ENTRY = "no-grid-log-entry"
    NO_LONGER_SELECTED = "no-longer-selected"
    NO_VO = "no-vo"
    PERIOD_NOT_OVER = "period-not-over"
    PERIOD_PURGED = "period-purged"
    PERSON_ERASED = "person-erased"
    PURGED_BEFORE_IT_CAME = "purged-before-it-came"
    """The other jobs of its month were purged before this one was read."""
    REFUSED = "refused"
    SAME_KEY = "same-key"
    SENT_AGAIN = "sent-again"
    SOURCES_INCOMPLETE = "sources-incomplete"
    SOURCE_INCOMPLETE = "source-incomplete"
    SOURCE_NOT_READ = "source-not-read"
    WAIVED = "waived"


INCOMPLETE: Final = frozenset({
    ReasonCode.MONTH_PURGED,
    ReasonCode.PERIOD_PURGED,
    ReasonCode.SOURCE_NOT_READ,
    ReasonCode.FILE_DISAPPEARED,
    ReasonCode.SOURCE_INCOMPLETE,
    ReasonCode.SOURCES_INCOMPLETE,
})  # fmt: skip
"""A month or period is not known whole. What is held for this is released by itself."""
ONLY_A_PERSON_RELEASES: Final = frozenset({ReasonCode.PURGED_BEFORE_IT_CAME, ReasonCode.CHANGED_AFTER_PURGE})

_NOT_WHOLE: Final = "the month is not known whole: "
_PURGED: Final = "purged: "
SENTENCES: Final[Mapping[str, str]] = {
    **RULE_SENTENCES,
    ReasonCode.ADD_ON_FAILED: (
        "{field}: the add-on failed at this record: {error}. This is a defect of the add-on: report it to its authors, "
        "and update it"
    ),
    ReasonCode.AFTER_YEAR_9999: "it ended after the year 9999, which no report can be of",
    ReasonCode.ASSUMED: "delivered before us, as far as is known",
    ReasonCode.CHANGED_AFTER_DELIVERY: (
        "the run changed after it was, or may have been, delivered; the service keeps its first version"
    ),
    ReasonCode.CHANGED_AFTER_PURGE: _PURGED + "the job changed after it was delivered and purged from the store",
    ReasonCode.FILE_DISAPPEARED: _NOT_WHOLE
    + "of source {source}, {file} disappeared before it was read to its end, and may have held jobs of {interval}; "
    "`usage-publisher collect --unreadable` says what to do",
    ReasonCode.KEPT_UNDER_OTHER_ID: "the service keeps it under the id {record_id}",
    ReasonCode.KEY_CHANGED: (
        "the end time or local id changed after delivery, and both are in the service's key: sent again, the job "
        "would count twice. Let the service's administrator remove the first record, then name this one to `records "
        "retry`, or waive it"
    ),
    ReasonCode.MONTH_PURGED: _NOT_WHOLE + "jobs of {month} were purged from the store",
    ReasonCode.NOT_DUE: "{field}: the target is not sent this run: waived, superseded or not selected",
    ReasonCode.NOT_IN_ANSWER: "the service's answer did not name this record; it is sent again",
    ReasonCode.NO_GRID_LOG_ENTRY: "{field}: no grid log entry yet: see sources.{source}.grid_log",
    ReasonCode.NO_LONGER_SELECTED: (
        "the run changed after it was, or may have been, delivered and is no longer selected"
    ),
    ReasonCode.NO_VO: "{field}: unknown, and this target needs it: add a rule [[sources.{source}.map]]",
    ReasonCode.PERIOD_NOT_OVER: (
        "it is not over, or its sources were not read beyond its end: its report is sent when it is complete"
    ),
    ReasonCode.PERIOD_PURGED: _NOT_WHOLE
    + "jobs of {month} were purged from the store, and some may have run in {interval}",
    ReasonCode.PERSON_ERASED: (
        "its person was erased, and the service has the summary under the name: have it taken out there, or waive "
        "this job"
    ),
    ReasonCode.PURGED_BEFORE_IT_CAME: _PURGED + "the other jobs of its month were purged from the store",
    ReasonCode.REFUSED: "{answer}",
    ReasonCode.SAME_KEY: (
        "LocalJobId: this run of source {source} and {first_record_id} of source {first_source} have the same site, "
        "local id {local_id}, and end time, by which APEL knows a job record: it would replace that one. If both are "
        "the same job, waive this one. If not, set a `local_id_prefix` for one of the sources; this one is then "
        "tried again. If that one will not be sent, because it was rejected or waived, name this one to `records retry`"
    ),
    ReasonCode.SENT_AGAIN: "reconcile did not find it at the service as it was sent",
    ReasonCode.SOURCES_INCOMPLETE: _NOT_WHOLE
    + "sources {sources} cannot tell that they have every job from {interval} on; if they have, set "
    "sources.NAME.complete_since",
    ReasonCode.SOURCE_INCOMPLETE: _NOT_WHOLE
    + "source {source} cannot tell that it has every job from {interval} on; if it has, set "
    "sources.{source}.complete_since",
    ReasonCode.SOURCE_NOT_READ: _NOT_WHOLE + "source {source} was not yet read to its end",
    ReasonCode.WAIVED: "{text}",
}


def sentence(reason: Reason | None) -> str:
    """A reason in words; empty for None."""
    return "" if reason is None else reason.filled_in(SENTENCES)


Stored = tuple[str | None, str | None]
"""A reason in the columns `reason` and `reason_parameters`."""


def stored(reason: Reason | None) -> Stored:
    """The columns of a reason."""
    if reason is None:
        return None, None
    if not reason.parameters:
        return reason.code, None
    values = {name: utf8(value) if isinstance(value, str) else value for name, value in reason.parameters}
    return reason.code, msgspec.json.encode(values).decode()


_decode: Final = msgspec.json.Decoder(dict[str, str | int]).decode


def from_stored(code: str | None, parameters: str | None) -> Reason | None:
    """The reason in these columns."""
    if code is None:
        return None
    return Reason(code, () if parameters is None else tuple(sorted(_decode(parameters).items())))
