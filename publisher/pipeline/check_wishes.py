"""check, of targets that got nothing although jobs were collected: why none of them is for it."""

from __future__ import annotations

from collections.abc import Iterator

from publisher.config import Config
from publisher.finding import Finding
from publisher.pipeline.status import Status
from publisher.pipeline.wish import Wish
from publisher.store.classes import all_classes
from publisher.store.database import Store


def wishes(config: Config, store: Store, found: Status) -> Iterator[Finding]:
    """One finding for each target that wants no job of those that were collected. `found`: the status now."""
    ends = [source.last_job_end for source in found.sources.values() if source.last_job_end is not None]
    empty = [name for name, target in found.targets.items() if target.untouched]
    if not ends or not empty:
        return
    with store.read() as connection:
        known = [(each.source, each.facts) for each in all_classes(connection)]
    for name in empty:
        wish = Wish(name, config.targets[name], config)
        reasons = {wish.why_not(source, facts) for source, facts in known}
        if None in reasons:
            why = wish.why_not_end(max(ends))
            if why is None:
                continue  # planned by the next publish
            reasons = {why}
        listed = "; ".join(sorted(reason for reason in reasons if reason is not None))
        text = f"no job of those collected is for it: {listed}"
        yield Finding(
            f"target {name}", "yellow", text, "Right, if it is meant so; else change that setting of the target"
        )
