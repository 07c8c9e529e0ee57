"""Choose the benchmark score of a run for a receiver.

APEL accepts HEPscore23, HEPSPEC, and Si2k, in any case, prefers them in this order, and stores three decimals
(facts/formats.md 4.3). A run without a usable score has none: it is held if a format needs one, and never gets a
default. A benchmark in a record that APEL does not accept (`CloudMark:5`, `HEPSPEC:1:2`) counts as missing, with a
note, so that the configured one is used.
"""

from __future__ import annotations

from typing import Final

from formats.base import Note
from formats.fit import shown
from formats.job import Benchmark, Job
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import compared
from formats.view import View

BENCHMARKS: Final = ("HEPscore23", "HEPSPEC", "Si2k")
"""The benchmarks that APEL knows, in its order of preference and in the spelling that is sent."""

_SENT: Final = frozenset(BENCHMARKS)
_CANONICAL: Final = {name.lower(): name for name in BENCHMARKS}

_SI2K: Final = compared("Si2k")
_PER_SI2K: Final = 1000 // 250
"""The server divides an Si2k score by 250 (facts on formats, 4.5): 4 thousandths, so that sums stay whole numbers."""

LARGEST_SCORE: Final = 9_999_999.999
"""The range of the server's DECIMAL(10,3)."""

FIELD: Final = "ServiceLevel"
_NAMES: Final = ", ".join(BENCHMARKS)
_LARGEST: Final = str(LARGEST_SCORE)


def canonical_name(name: str) -> str | None:
    """The spelling in which a benchmark's name is sent; None if APEL does not know it."""
    return _CANONICAL.get(name.strip().lower())


def milli_of(text: str | None) -> int | None:
    """A score as text in thousandths, as the server's DECIMAL(10,3) has it; None if it is missing or not a score."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return round(value * 1000) if abs(value) <= LARGEST_SCORE else None


def usable_score(value: float) -> bool:
    """Whether the server can store a score: positive after rounding to three decimals, and within its column."""
    return value <= LARGEST_SCORE and round(value, 3) > 0  # NaN fails the first comparison


def has_usable_benchmark(job: Job) -> bool:
    """Whether APEL accepts one of the run's benchmarks, regardless of the view's preference."""
    for benchmark in job.benchmarks:  # noqa: SIM110 - called for every run that is read; a generator takes three times as long
        if _is_usable(benchmark):
            return True
    return False


def _is_usable(benchmark: Benchmark) -> bool:
    if benchmark.type in _SENT and 1 <= benchmark.value <= LARGEST_SCORE:  # the usual case
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
    """As `noted_benchmark`. Raises `CannotRenderError` if none is usable: there is no default."""
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
    return ", ".join(_as_written(benchmark) for benchmark in job.benchmarks if not _is_usable(benchmark))


def _as_written(benchmark: Benchmark) -> str:
    """A benchmark as sources write it; only the text if no score could be read (`formats.job.Benchmark`)."""
    return shown(f"{benchmark.type}:{benchmark.value:g}" if benchmark.value else benchmark.type)


def score_text(score: float) -> str:
    """A score as written in a message: at most three decimals, without trailing zeros."""
    return f"{score:.3f}".rstrip("0").rstrip(".")


def normalising_factor(benchmark: str) -> int:
    """What a score in thousandths is multiplied by, so that milliseconds times the product are 1e-9 of a normalised
    second."""
    return _PER_SI2K if compared(benchmark) == _SI2K else 1000


def normalised_from(seconds: float, benchmark: str, score_milli: int) -> float:
    """Normalised seconds as the server computes them of a sum of seconds and a score in thousandths."""
    return seconds * score_milli * normalising_factor(benchmark) / 1_000_000
