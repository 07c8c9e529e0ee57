"""Our own formats keep the promises of `publisher.testing`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from formats.base import Format
from formats.job import Job
from formats.registry import FORMATS, names_of
from publisher.testing import FormatSuite
from tests.extent import short_or_whole


class TestFormats(FormatSuite):
    examples = short_or_whole(30, 300)

    def jobs(self) -> Sequence[Job]:
        """They have the account and user by which Waldur counts."""
        return [msgspec.structs.replace(job, account="physics", local_user=job.user_dn) for job in super().jobs()]

    @pytest.fixture(params=names_of("record", "totals"))
    def form(self, request: pytest.FixtureRequest) -> Format:
        return FORMATS[request.param]
