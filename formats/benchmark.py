"""Which benchmark score of a run a receiver gets.

APEL takes HEPscore23, HEPSPEC and Si2k, in any case, prefers them in this order, and stores three decimals (facts on
formats, 4.3). A run without a usable score has none: it is held where a format needs it, never given a default. What a
record says and APEL does not take (`CloudMark:5`, `HEPSPEC:1:2`) is no reason to ignore the configuration: it counts as
if the record had no benchmark, and is noted.
"""

from __future__ import annotations

from typing import Final

from formats.base import Note
from formats.fit import shown
from formats.job import Benchmark, Job
from formats.rule_codes import CannotRenderError, RuleCode
from formats.view import View

BENCHMARKS: Final = ("HEPscore23", "HEPSPEC", "Si2k")
"""The benchmarks APEL knows, in its order of preference and in the spelling we send."""

_SENT: Final = frozenset(BENCHMARKS)
_CANONICAL: Final = {name.lower(): name for name in BENCHMARKS}

LARGEST_SCORE: Final = 9_999_999.999
"""Of the server's DECIMAL(10,3)."""

FIELD: Final = "ServiceLevel"
_NAMES: Final = ", ".join(BENCHMARKS)
_LARGEST: Final = str(LARGEST_SCORE)


def canonical_name(name: str) -> str | None:
    """The spelling we send of a benchmark's name; None for a benchmark APEL does not know."""
    return _CANONICAL.get(name.strip().lower())


def usable_score(value: float) -> bool:
    """True for a score the server can hold: positive after rounding to three decimals, and not beyond its column."""
    return value <= LARGEST_SCORE and round(value, 3) > 0  # NaN fails the first comparison


def has_usable_benchmark(job: Job) -> bool:
    """True if APEL takes one of the run's benchmarks, whatever the view prefers."""
    for benchmark in job.benchmarks:  # noqa: SIM110 - asked for every run that is read; a generator costs thrice
        if _is_usable(benchmark):
            return True
    return False


def _is_usable(benchmark: Benchmark) -> bool:
    if benchmark.type in _SENT and 1 <= benchmark.value <= LARGEST_SCORE:  # nearly always
        return True
    return canonical_name(benchmark.type) is not None and usable_score(benchmark.value)


def choose_benchmark(job: Job, view: View) -> Benchmark | None:
    """The run's benchmark for this view, canonical name, score rounded to three decimals; None if none fits.

    The view's preferred type if the run has it, else the first of `BENCHMARKS` that it has. Of several scores of one
    type the first usable one counts.
    """
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


def noted_benchmark(job: Job, view: View, notes: list[Note]) -> Benchmark | None:
    """As `choose_benchmark`, with a note of those that are not usable."""
    chosen = choose_benchmark(job, view)
    if unusable := _unusable(job):
        sent = f"{chosen.type}:{score_text(chosen.value)}" if chosen is not None else None
        notes.append(
            Note(
                FIELD,
                f"not a usable benchmark: APEL takes {_NAMES} with a score from 0.001 to {_LARGEST}",
                unusable,
                sent,
            )
        )
    return chosen


def require_benchmark(job: Job, view: View, notes: list[Note]) -> Benchmark:
    """As `noted_benchmark`. Raises `CannotRenderError` where none is usable: never a quiet default."""
    chosen = noted_benchmark(job, view, notes)
    if chosen is None:
        unusable = _unusable(job)
        if unusable:
            raise CannotRenderError(
                RuleCode.UNUSABLE_BENCHMARK, FIELD, unusable=unusable, taken=_NAMES, largest=_LARGEST
            )
        raise CannotRenderError(RuleCode.NO_BENCHMARK, FIELD, taken=_NAMES, largest=_LARGEST)
    return chosen


def _unusable(job: Job) -> str:
    return ", ".join(_as_told(each) for each in job.benchmarks if not _is_usable(each))


def _as_told(benchmark: Benchmark) -> str:
    """A benchmark as sources write it; only the text where no score could be read (`formats.job.Benchmark`)."""
    return shown(f"{benchmark.type}:{benchmark.value:g}" if benchmark.value else benchmark.type)


def score_text(score: float) -> str:
    """A score as it stands in a message: at most three decimals, none that are zero."""
    return f"{score:.3f}".rstrip("0").rstrip(".")
