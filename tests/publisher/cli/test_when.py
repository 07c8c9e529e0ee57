"""Durations of options: as in the configuration, where a plain number is one of seconds."""

from __future__ import annotations

import pytest

from publisher.cli.options import seconds
from publisher.errors import UsageError


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1h30m", 5400), ("0.5s", 0.5)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text, "--every") == expected


@pytest.mark.parametrize("text", ["", "often", "1.5", "-1", "²", "9" * 400])
def test_what_is_not_a_duration_names_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--every: "):
        seconds(text, "--every")
