"""Our own formats keep the promises of `publisher.testing`."""

from __future__ import annotations

import pytest

from formats.base import Format
from formats.registry import FORMATS, names_of
from publisher.testing import FormatSuite
from tests.extent import short_or_whole


class TestFormats(FormatSuite):
    examples = short_or_whole(30, 300)

    @pytest.fixture(params=names_of("record", "totals"))
    def form(self, request: pytest.FixtureRequest) -> Format:
        return FORMATS[request.param]
