"""Troubles worth a mail: pure, from the status and what is configured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from publisher.config_observe import Notices
from publisher.pipeline.status import SourceStatus, Status, TargetStatus
from publisher.times import elapsed_s, iso

ADVICE: Final = "usage-publisher status tells more."


class Trouble(msgspec.Struct, frozen=True):
    """One thing that is wrong. `key` is the same as long as it goes on; `text` tells people what and what now."""

    key: str
    text: str


def troubles(status: Status, settings: Notices, now: int) -> list[Trouble]:
    """All that is wrong now."""
    found: list[Trouble] = []
    for name, source in status.sources.items():
        found += _of_source(name, source)
    for name, target in status.targets.items():
        found += _of_target(name, target, settings, now)
    return found


def _of_source(name: str, source: SourceStatus) -> Iterator[Trouble]:
    if source.error is not None:
        yield Trouble(f"source {name}: failing", f"The source {name} could not be read: {source.error}")
    if source.silent:
        last = iso(source.last_job_end) or "never"
        yield Trouble(
            f"source {name}: silent",
            f"The source {name} is silent for longer than expect_every; its last job ended {last}. "
            "Does the batch system run jobs, and still write its accounting where we read it?",
        )


def _of_target(name: str, target: TargetStatus, settings: Notices, now: int) -> Iterator[Trouble]:
    if target.last_error is not None and _fails_for_s(target, now) >= settings.target_fails_for:
        since = iso(target.last_success) or "ever"
        yield Trouble(
            f"target {name}: failing",
            f"The target {name} has had no success since {since}; {target.waiting} jobs wait for it. "
            f"It says: {target.last_error}",
        )
    if target.rejected:
        yield Trouble(
            f"target {name}: rejected",
            f"The target {name} rejects records, {target.rejected} by now: "
            f"usage-publisher rejected list --target {name}",
        )
    days = target.certificate_days_left
    if days is not None and days < settings.certificate_days:
        when = "has expired" if days < 0 else f"is valid for {days} more days"
        yield Trouble(f"target {name}: certificate", f"Our certificate for the target {name} {when}. Renew it.")


def _fails_for_s(target: TargetStatus, now: int) -> float:
    """How long there was no success; a target that never had any fails for as long as one can think of."""
    elapsed = elapsed_s(target.last_success, now)
    return float("inf") if elapsed is None else elapsed
