"""Which benchmark score of a run a receiver gets.

APEL takes HEPscore23, HEPSPEC and Si2k, in any case, prefers them in this order, and stores three decimals (facts on
formats, 4.3). A run without a usable score has none: it is held where a format needs it, never given a default.
"""

from __future__ import annotations

from typing import Final

from formats.job import Benchmark, Job
from formats.view import View

BENCHMARKS: Final = ("HEPscore23", "HEPSPEC", "Si2k")
"""The benchmarks APEL knows, in its order of preference and in the spelling we send."""

_CANONICAL: Final = {name.lower(): name for name in BENCHMARKS}

LARGEST_SCORE: Final = 9_999_999.999
"""Of the server's DECIMAL(10,3)."""


def canonical_name(name: str) -> str | None:
    """The spelling we send of a benchmark's name; None for a benchmark APEL does not know."""
    return _CANONICAL.get(name.strip().lower())


def usable_score(value: float) -> bool:
    """True for a score the server can hold: positive after rounding to three decimals, and not beyond its column."""
    return value <= LARGEST_SCORE and round(value, 3) > 0  # NaN fails the first comparison


def choose_benchmark(job: Job, view: View) -> Benchmark | None:
    """The run's benchmark for this view, canonical name, score rounded to three decimals; None if none fits.

    The view's preferred type if the run has it, else the first of `BENCHMARKS` that it has. Of several scores of one
    type the first usable one counts.
    """
    if not job.benchmarks:
        return None
    scores: dict[str, float] = {}
    for benchmark in job.benchmarks:
        name = canonical_name(benchmark.type)
        if name is not None and name not in scores and usable_score(benchmark.value):
            scores[name] = round(benchmark.value, 3)
    preferred = canonical_name(view.benchmark) if view.benchmark else None
    for name in (preferred, *BENCHMARKS):
        if name is not None and name in scores:
            return Benchmark(name, scores[name])
    return None


def score_text(score: float) -> str:
    """A score as it stands in a message: at most three decimals, none that are zero."""
    return f"{score:.3f}".rstrip("0").rstrip(".")
