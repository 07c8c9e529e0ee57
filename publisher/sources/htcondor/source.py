"""Source `htcondor`: finished jobs of HTCondor and HTCondor-CE.

Every ad of a job that ran becomes one job. It reads history files with their rotated copies (`history`,
`history.YYYYMMDDTHHMMSS`), a per-job history directory (files `history.C.P`, which stay in place), output of
`condor_history` with `-long`, `-json`, or `-xml`, and the log that APEL lets HTCondor write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from publisher.config.sources import SourceSettings
from publisher.sources.base import Outcome, UnreadableLine, required_path
from publisher.sources.htcondor import lines, xml
from publisher.sources.logs.documents import SavedSource
from publisher.sources.logs.json_stream import Damaged, JsonElements
from publisher.sources.logs.open_log import OpenLog

_HEAD: Final = 4_096


class HTCondorSource(SavedSource):
    """The history of a schedd: a file, a folder, or a pattern."""

    def __init__(self, name: str, settings: SourceSettings) -> None:
        path = required_path(
            name, settings, "a history, or of the PER_JOB_HISTORY_DIR", "/var/lib/condor/spool/history"
        )
        cluster, has_groups = settings.cluster, settings.token_groups

        def document(log: OpenLog) -> Iterator[Outcome]:
            return _document(log, cluster, has_token_groups=has_groups)

        super().__init__(
            name, "htcondor", path, None, lambda: lines.HTCondorParser(cluster, has_token_groups=has_groups),
            frozenset({"htcondor-json", "htcondor-xml"}), document,
            complete_since=settings.complete_since, rotated_to=settings.rotated_to,
        )  # fmt: skip


def _document(log: OpenLog, cluster: str | None, *, has_token_groups: bool) -> Iterator[Outcome]:
    head = log.read(_HEAD)
    log.unread(head)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        for ad in xml.ads(log.read):
            if isinstance(ad, UnreadableLine):
                yield ad
            else:
                yield lines.from_ad(ad, cluster, has_token_groups=has_token_groups)
        return
    for element in JsonElements(log.read):
        if isinstance(element, Damaged):
            yield UnreadableLine(element.reason, raw=element.begin.encode(errors="replace"))
        else:
            yield lines.from_json(element, cluster, has_token_groups=has_token_groups)
