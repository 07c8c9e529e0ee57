"""A benchmark score as text: type and value in two fields, or since v0.4 of APEL's messages as `{HEPscore23: 14.2}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from formats.benchmark import BENCHMARKS, score_text
from formats.job import Benchmark
from formats.rules import MessageType

_CANONICAL: Final = {name.lower(): name for name in BENCHMARKS}


def score_fields(message_type: MessageType, benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    """The fields that contain a score in messages of that type."""
    score = score_text(benchmark.value)
    if "ServiceLevel" in message_type.scores:
        yield "ServiceLevel", f"{{{benchmark.type}: {score}}}"
    else:
        yield "ServiceLevelType", benchmark.type
        yield "ServiceLevel", score


def read_scores(text: str) -> dict[str, float]:
    """Scores of `{hepspec: 10, HEPscore23: 11.5}` by lower-case name, read as the server reads them.

    Raises `ValueError` for a text that is not such a list, or that names a benchmark twice.
    """
    scores: dict[str, float] = {}
    seen: set[str] = set()
    for element in text.strip("{}").split(","):
        name, value = element.split(":")
        if name.strip() in seen:
            raise ValueError(f"{name.strip()} occurs twice")
        seen.add(name.strip())
        scores[name.strip().lower()] = float(value.strip())
    return scores


def preferred_score(scores: dict[str, float]) -> tuple[str, float] | None:
    """The score that the server uses, with the name that we send; None if it knows none of them."""
    for name in BENCHMARKS:
        if name.lower() in scores:
            return name, scores[name.lower()]
    return None


def read_score(level: str | None, level_type: str | None) -> tuple[str, float] | None:
    """Benchmark and score of a record of either kind; None if no score can be read."""
    if level is None:
        return None
    try:
        if level.startswith("{"):
            return preferred_score(read_scores(level))
        if level_type is None:
            return None
        return _CANONICAL.get(level_type.lower(), level_type), float(level)
    except ValueError:
        return None
