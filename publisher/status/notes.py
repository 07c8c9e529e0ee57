"""What is to be known of a source or target, in words: for the command `status` and the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from publisher.text import counted

if TYPE_CHECKING:
    from publisher.collect.collect import Collected
    from publisher.status.status import SourceStatus, TargetStatus

FEW_DAYS: Final = 14
"""A certificate with fewer days left is a problem."""
SELECTS_NONE: Final = "selects no job: usage-publisher check shows why"
"""Of a target that is `untouched` although jobs were collected."""


def usage_notes(found: Collected | SourceStatus) -> Iterator[str]:
    """How many jobs of a source have each note (`publisher.encoded_run.UsageNote`), and what to do."""
    if found.cpu_sampled:
        yield (
            f"{counted(found.cpu_sampled, 'job')}: Slurm's TotalCPU is too small, so the CPU time is TRESUsageInTot's. "
            "If such jobs were sent before, `usage-publisher republish` sends their months again"
        )
    if found.cpu_doubtful:
        yield (
            f"{counted(found.cpu_doubtful, 'job')}: steps of srun have no CPU time, as Slurm 25.05 and 25.11 record "
            "them, and the source has no TRESUsageInTot: the CPU time is probably too small. Read them with this column"
        )


def totals_left(target: TargetStatus) -> list[str]:
    """How many totals the service did not take, or refused."""
    of_totals = ((target.totals_rejected, "rejected"), (target.totals_held, "held"))
    return [f"{counted(number, 'total')} {state}" for number, state in of_totals if number]


def unconfirmed_text(target: TargetStatus) -> str:
    """For how long the oldest accepted job is unconfirmed."""
    return f"unconfirmed for {counted(target.unconfirmed_days or 0, 'day')}"


def differences_text(name: str, target: TargetStatus) -> str:
    """How many differences there are to what the service has."""
    differences = counted(target.differences, "difference")
    return f"{differences} to what the service has: usage-publisher reconcile {shlex.quote(name)}"


def evidence_notes(name: str, target: TargetStatus, *, early: bool = True) -> Iterator[str]:
    """What is not confirmed, why there is no evidence, and how it differs. `early`: also what is not overdue."""
    if target.evidence == "none":
        if target.confirmed != target.accepted:  # else there is nothing to confirm, or a file confirmed everything
            yield "not confirmed: nothing shows what the service has; name a file with its list in `evidence`"
        return
    if target.unconfirmed_days and (early or target.confirmation_overdue):
        jobs = counted(target.accepted - target.confirmed, "job")
        yield f"accepted and not confirmed: {jobs}, the oldest {unconfirmed_text(target)}"
    if target.evidence_problem is not None:
        yield f"no evidence of what the service has: {target.evidence_problem}"
    if target.differences:
        yield differences_text(name, target)


def removed_amount_notes(name: str, target: TargetStatus) -> Iterator[str]:
    """Which amounts of totals the settings do not have any more, and what is sent for them."""
    for amount, number in target.removed_amounts.items():
        totals = f"{counted(number, 'total')} sent before"
        text = f"{amount} is not in the settings any more; zero is sent with the next version of {totals}"
        yield f"{text}, or now by usage-publisher republish {shlex.quote(name)}"
