"""Reasons for the state of a delivery: codes with parameters, as they are stored, and the sentences shown for them.

A record that `formats` cannot render has a reason of `rule_codes.RuleCode`. The answer of a service, the text of a
waiver, and the error of an add-on are parameters; the program does not interpret them.
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
    """Accepted, and never sent from this store: its state, or a person, says that an earlier publisher did."""
    BLOCKED = "blocked"
    """The service does not take it now, because of the state of an account or period there."""
    CHANGED_AFTER_DELIVERY = "changed-after-delivery"
    CHANGED_AFTER_PURGE = "changed-after-purge"
    COUNTED_ELSEWHERE = "counted-elsewhere"
    """Waived: another source has the same job, and the run of that one counts."""
    DAMAGED = "damaged"
    """What is stored of the run is not what was read."""
    FILE_DISAPPEARED = "file-disappeared"
    KEPT_UNDER_OTHER_ID = "kept-under-other-id"
    """Accepted: the service has the record under another id than the one that was sent."""
    KEY_CHANGED = "key-changed"
    KEPT_VERSION = "kept-version"
    """Superseded: the service has another version of the record and does not change it."""
    MAY_BE_FORGED = "may-be-forged"
    """A line that was read after the job shows that a user may have written its record."""
    MONTH_DAMAGED = "month-damaged"
    MONTH_PURGED = "month-purged"
    NOT_DUE = "not-due"
    NOT_IN_ANSWER = "not-in-answer"
    NO_CORES = "no-cores"
    NO_ENERGY = "no-energy"
    NO_GRID_LOG_ENTRY = "no-grid-log-entry"
    NO_LONGER_SELECTED = "no-longer-selected"
    NO_VO = "no-vo"
    PERIOD_NOT_OVER = "period-not-over"
    PERIOD_PURGED = "period-purged"
    PERSON_ERASED = "person-erased"
    PURGED_BEFORE_IT_CAME = "purged-before-it-came"
    """The other jobs of its month were purged before this one was read."""
    REFUSED = "refused"
    SENT_AGAIN = "sent-again"
    SOURCES_INCOMPLETE = "sources-incomplete"
    SOURCE_INCOMPLETE = "source-incomplete"
    SOURCE_NOT_READ = "source-not-read"
    TOO_LARGE = "too-large"
    """Refused because of its size, alone in a message."""
    WAIVED = "waived"


TRIED_AGAIN: Final = frozenset({
    ReasonCode.BLOCKED,
    ReasonCode.MONTH_PURGED,
    ReasonCode.PERIOD_PURGED,
    ReasonCode.SOURCE_NOT_READ,
    ReasonCode.FILE_DISAPPEARED,
    ReasonCode.MONTH_DAMAGED,
    ReasonCode.SOURCE_INCOMPLETE,
    ReasonCode.SOURCES_INCOMPLETE,
})  # fmt: skip
"""What is held for one of these reasons waits again, without anybody, once its month or period is known to be
complete."""
RELEASED_SOON: Final = frozenset({
    ReasonCode.NO_ENERGY, ReasonCode.NO_GRID_LOG_ENTRY, ReasonCode.SOURCE_NOT_READ
})  # fmt: skip
"""What is held for this reason is usually released by one of the next runs, and needs nobody."""
ONLY_A_PERSON_RELEASES: Final = frozenset({
    ReasonCode.PURGED_BEFORE_IT_CAME,
    ReasonCode.CHANGED_AFTER_PURGE,
    ReasonCode.MAY_BE_FORGED,
})  # fmt: skip

_MAY_LACK_JOBS: Final = "the month may be incomplete: "
_PURGED: Final = "purged: "
SENTENCES: Final[Mapping[str, str]] = {
    **RULE_SENTENCES,
    ReasonCode.ADD_ON_FAILED: (
        "{field}: the add-on failed for this record: {error}. This is a defect of the add-on: report it to its "
        "authors, and update it"
    ),
    ReasonCode.AFTER_YEAR_9999: "the job ended after the year 9999, the last of which a report is made",
    ReasonCode.ASSUMED: "delivered by an earlier publisher, as far as is known",
    ReasonCode.BLOCKED: "the service does not take it now: {answer}. Each run tries again",
    ReasonCode.CHANGED_AFTER_DELIVERY: (
        "the job changed after it was, or may have been, delivered; the service keeps the first version"
    ),
    ReasonCode.CHANGED_AFTER_PURGE: _PURGED + "the job changed after it was delivered and purged from the store",
    ReasonCode.COUNTED_ELSEWHERE: (
        "counted elsewhere: it is the same job as {record_id} of source {source}, which counts at this target"
    ),
    ReasonCode.DAMAGED: (
        "the store is damaged: this job is not stored as it was read. Read its source again: `usage-publisher collect "
        "{source} --since T --until T`, from the start to the end of the job; it is then sent. If the source no longer "
        "has it, restore a backup of the store, or waive this record"
    ),
    ReasonCode.FILE_DISAPPEARED: _MAY_LACK_JOBS
    + "file {file} of source {source} disappeared before it was read to its end, and may have had jobs of {interval}. "
    "`usage-publisher collect --unreadable` says what to do",
    ReasonCode.KEPT_UNDER_OTHER_ID: "the service has it under the id {record_id}",
    ReasonCode.KEPT_VERSION: (
        "the service has another version of this record, which it does not change: {difference}. Ask its administrator "
        "to remove it, then name this one to `usage-publisher records retry --state superseded`; or waive it"
    ),
    ReasonCode.KEY_CHANGED: (
        "the end time or local id changed after delivery. Both are in the service's key, so the job would count twice "
        "if it were sent again. Ask the service's administrator to remove the first record, then name this one to "
        "`usage-publisher records retry`; or waive it"
    ),
    ReasonCode.MAY_BE_FORGED: (
        "line {line} of {file}, read after the job, shows that a user may have written its record. Look at the log: "
        "`usage-publisher records retry` sends the job, `records waive` gives it up"
    ),
    ReasonCode.MONTH_DAMAGED: (
        "the store is damaged: {number} jobs of this month that were sent are not stored as they were read, such as "
        "{record_id}, and without them its sums would shrink. Read the sources of this month again: `usage-publisher "
        "collect --since T --until T`; the month is then sent. `usage-publisher store check` lists the jobs"
    ),
    ReasonCode.MONTH_PURGED: _MAY_LACK_JOBS + "jobs of {month} were purged from the store",
    ReasonCode.NOT_DUE: "{field}: the job is not sent to this target: it is waived, superseded, or not selected",
    ReasonCode.NOT_IN_ANSWER: "the service's answer did not name this record; it is sent again",
    ReasonCode.NO_CORES: (
        "{field}: unknown, and sums of core hours would lack this job. Name the component with "
        "them in the table `components` of sources.{source}, then read it again: `usage-publisher collect {source} "
        "--since T --until T`"
    ),
    ReasonCode.NO_ENERGY: (
        "{field}: unknown, and this target needs it: nothing was measured, and no [[energy.power]] matches it"
    ),
    ReasonCode.NO_GRID_LOG_ENTRY: "{field}: no grid log entry yet. See sources.{source}.grid_log",
    ReasonCode.NO_LONGER_SELECTED: (
        "the job changed after it was, or may have been, delivered, and the target no longer selects it"
    ),
    ReasonCode.NO_VO: "{field}: unknown, and this target needs it. Add a rule [[sources.{source}.map]]",
    ReasonCode.PERIOD_NOT_OVER: (
        "the period is not over, or its sources were not read beyond its end. It is sent when it is complete"
    ),
    ReasonCode.PERIOD_PURGED: _MAY_LACK_JOBS
    + "jobs of {month} were purged from the store; some may have run in {interval}",
    ReasonCode.PERSON_ERASED: (
        "the person of this job was erased, and the service has the summary under the person's name. Ask the service's "
        "administrator to remove the summary, or waive this job"
    ),
    ReasonCode.PURGED_BEFORE_IT_CAME: _PURGED + "the other jobs of its month were purged from the store",
    ReasonCode.REFUSED: "{answer}",
    ReasonCode.SENT_AGAIN: "reconcile did not find it at the service as it was sent",
    ReasonCode.SOURCES_INCOMPLETE: _MAY_LACK_JOBS
    + "sources {sources} do not show that they have every job from {interval} on. If they have, set "
    "sources.NAME.complete_since",
    ReasonCode.SOURCE_INCOMPLETE: _MAY_LACK_JOBS
    + "source {source} does not show that it has every job from {interval} on. If it has, set "
    "sources.{source}.complete_since",
    ReasonCode.SOURCE_NOT_READ: _MAY_LACK_JOBS + "source {source} was not yet read to its end",
    ReasonCode.TOO_LARGE: (
        "alone it makes a message of {size_bytes} bytes, too large: {answer}. Ask the service's administrator to "
        "accept larger messages (nginx: client_max_body_size), raise `batch_bytes` of the target if that is the limit, "
        "or send less of the job (`ur_extensions` without file-transfers); then `usage-publisher records retry`. Or "
        "waive it"
    ),
    ReasonCode.WAIVED: "{text}",
}


def sentence(reason: Reason | None) -> str:
    """The sentence of a reason; empty for None."""
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
