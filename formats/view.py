"""How one receiver sees the jobs: everything on which a rendering depends, besides the job.

The caller makes a view from the configuration of a site and a target; every format takes it as an argument.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SubmitHostSpelling = Literal["arc", "url", "arc-6.21", "host", "apel-client"]
"""APEL's SubmitHost of an ARC endpoint. `arc`: `<interface without org.nordugrid.>:<URL>` for arcrest and internal, the
bare URL for emies and gridftp; `url`: the bare URL always (ARC up to 6.20); `arc-6.21`: as `arc`, with `ternal` for
`internal`, as ARC writes it since that release; `host`: only the host; `apel-client`: the bare URL, and `None` for a
local job. A site keeps the spelling of its history."""

VoSpelling = Literal["plain", "arc", "arc-6.20", "arc-6.17", "apel-client"]
"""`plain`: group `/atlas`, role `Role=production` (the convention); `arc`: `/Role=production` and `Role=NULL`;
`arc-6.20`: group `/atlas/Role` for a run with a role, and `Role=NULL` always, as that release wrote them; `arc-6.17`:
the same, also for a run without a VO, with the group `/`, as up to 6.19; `apel-client`: the role as the FQAN has it,
`Role=NULL` included, and the Unix group as VO of a local job."""

SummaryCounts = Literal["nodes-and-cores", "cores", "none"]
"""Which of NodeCount and Processors, both in the key of a summary, have values; the others are 0. The APEL client sends
no NodeCount of Grid Engine and HTCondor, and neither of them without `parallel` in its parser.cfg."""

NamespaceStyle = Literal["default", "prefixed"]
"""`default`: elements in the default namespace; `prefixed`: every element has the prefix `urf`."""

DnPolicy = Literal["send", "hash", "withhold"]

UrExtension = Literal["vo", "file-transfers", "submit-time", "exit-code", "runtime-environment", "user-time"]


StartFrom = Literal["start", "wall"]
"""For receivers whose wall time is end - start: `start` sends the start as it is; `wall` sends end - wall time, so that
the wall time is right and the start is not."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver's view of the jobs of a site."""

    site: str
    version: str = ""
    """Version of the format, if it has several (`0.2`, `0.3`, `0.4`); empty: the format's default."""
    infrastructure_description: str | None = None
    """None: `<accounting client>-<middleware or system>-<LRMS>`, by the convention of CAR."""
    summary_description: str | None = None
    """InfrastructureDescription of summaries; None: omitted, since APEL before 2.5.0 refuses a message that has it."""
    record_id_prefix: str = ""
    local_id_prefix: str = ""
    submit_host: SubmitHostSpelling = "arc"
    vo_spelling: VoSpelling = "plain"
    summary_counts: SummaryCounts = "nodes-and-cores"
    vo_type: str = "voms"
    vo_groups_for_sgas: Literal["stripped", "arc"] = "stripped"
    benchmark: str | None = None
    """Prefer this benchmark type if a job has several; None: HEPscore23, then HEPSPEC, then Si2k."""
    ur_extensions: frozenset[UrExtension] = frozenset(
        {"vo", "file-transfers", "submit-time", "exit-code", "runtime-environment", "user-time"}
    )
    namespace_style: NamespaceStyle = "default"
    service_class_as_service_level: bool = False
    """ARC's wninstance as the UR's ServiceLevel. Never the first ServiceLevel towards APEL."""
    start_from: StartFrom = "start"
    machine_name: str | None = None
    """Overrides the host of the endpoint or the cluster as MachineName."""
    signed: bool = False
    """Messages are signed, by us or later by SSM: see `formats.signed_text`."""
    ascii_names: bool = False
    """Write names in CARs in the ASCII form of APEL's text messages (`formats.apel.text`); values of its key are
    unchanged."""
    dn: DnPolicy = "send"
    options: msgspec.Struct | None = None
    """The settings that one format alone has, as it defines them."""
    dn_key: bytes = b""
    """Key of the keyed hash for `dn = "hash"`."""
