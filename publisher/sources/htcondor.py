"""Source `htcondor`: finished jobs of HTCondor and HTCondor-CE.

Promise kept here: every ad of a job that ran becomes one job. Read are history files with their rotated copies
(`history`, `history.YYYYMMDDTHHMMSS`), a per-job history directory (files `history.C.P`, which stay where they are),
what `condor_history` printed with `-long`, `-json` and `-xml`, and the log that APEL has HTCondor write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from publisher import config
from publisher.sources import htcondor_lines, htcondor_xml
from publisher.sources.base import required_path
from publisher.sources.json_elements import Damaged, JsonElements
from publisher.sources.lines import Outcome, Refused
from publisher.sources.openlog import OpenLog
from publisher.sources.saved import SavedSource

_HEAD: Final = 4_096


class HTCondorSource(SavedSource):
    """History of a schedd: a file, a folder or a pattern."""

    def __init__(self, name: str, settings: config.Source) -> None:
        path = required_path(
            name, settings, "a history, or of the PER_JOB_HISTORY_DIR", "/var/lib/condor/spool/history"
        )
        cluster = settings.cluster

        def document(log: OpenLog) -> Iterator[Outcome]:
            return _document(log, cluster)

        super().__init__(
            name, "htcondor", path, None, lambda: htcondor_lines.HTCondorParser(cluster),
            frozenset({"htcondor-json", "htcondor-xml"}), document,
            complete_since=settings.complete_since, rotated_to=settings.rotated_to,
        )  # fmt: skip


def _document(log: OpenLog, cluster: str | None) -> Iterator[Outcome]:
    head = log.read(_HEAD)
    log.unread(head)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        for ad in htcondor_xml.ads(log.read):
            yield ad if isinstance(ad, Refused) else htcondor_lines.from_ad(ad, cluster)
        return
    for element in JsonElements(log.read):
        if isinstance(element, Damaged):
            yield Refused(element.reason, raw=element.begin.encode(errors="replace"))
        else:
            yield htcondor_lines.from_json(element, cluster)
