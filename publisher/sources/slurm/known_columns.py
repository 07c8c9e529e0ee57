"""Columns of the tables without a header that other accounting programs let sacct write. Pure."""

from __future__ import annotations

from typing import Final

from publisher.sources.fields import LineError, decoded
from publisher.sources.slurm.table import Layout

_APEL: Final = "JobID|JobName|User|Group|Start|End|Elapsed|{}|Partition|NCPUS|NNodes|NodeList|MaxRSS|MaxVMSize|State"
_XDMOD: Final = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|GID|User|UID|Submit|Eligible|Start|End|Elapsed|ExitCode|State|"
    "NNodes|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|JobName"
)
_AUDITOR: Final = (
    "JobID|JobName|User|Group|Submit|Start|End|Elapsed|UserCPU|SystemCPU|TotalCPU|NCPUS|NNodes|MaxRSS|MaxVMSize|"
    "State|ExitCode|Account|Partition"
)
WITHOUT_HEADER: Final = tuple(
    Layout(columns.split("|"), "|")
    for columns in (
        _APEL.format("TotalCPU"),
        _APEL.format("CPUTimeRAW"),
        _XDMOD,
        _AUDITOR,
    )
)
"""Columns of the tables without a header that other accounting programs let sacct write."""


def without_header(line: bytes) -> Layout | None:
    """The layout of a table without a header that this line fits."""
    for layout in WITHOUT_HEADER:
        try:
            if layout.fits(layout.fields(decoded(line).split(layout.delimiter))):
                return layout
        except LineError:
            continue
    return None
