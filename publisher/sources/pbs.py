"""Source `pbs`: runs from the accounting files of PBS Pro and OpenPBS (`server_priv/accounting/YYYYMMDD`)."""

from __future__ import annotations

from publisher import config
from publisher.sources.pbs_log import PbsSource
from publisher.sources.pbs_runs import PBS


class PbsProSource(PbsSource):
    """The accounting folder of a PBS Pro or OpenPBS server."""

    def __init__(self, name: str, settings: config.Source) -> None:
        super().__init__(name, settings, PBS)
