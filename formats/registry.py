"""The formats by name: those with one record a run, the summaries, the sync counts that go with them, and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from formats.apel.job import ApelJobFormat
from formats.apel.summary import SummaryFormat, SyncFormat
from formats.base import RecordFormat
from formats.utilization.report import UtilizationFormat
from formats.view import View
from formats.xml.emi_car import ComputeRecordFormat
from formats.xml.ogf_ur import UsageRecordFormat

RECORD_FORMATS: Final[dict[str, Callable[[View], RecordFormat]]] = {
    "apel-job": ApelJobFormat,
    "emi-car": ComputeRecordFormat,
    "ogf-ur": UsageRecordFormat,
}


SUMMARY_FORMATS: Final = ("apel-normalised-summary", "apel-summary")
"""The formats with one record a group of runs."""


REPORT_FORMATS: Final = ("utilization",)
"""The formats that tell of an interval as a whole."""


FORMAT_NAMES: Final = tuple(sorted({*RECORD_FORMATS, *SUMMARY_FORMATS, "apel-sync", *REPORT_FORMATS}))
"""All of them."""


class UnknownFormatError(KeyError):
    """There is no format of that kind and name; `known` are those there are."""

    def __init__(self, name: str, known: Iterable[str] = RECORD_FORMATS) -> None:
        super().__init__(name)
        self.name = name
        self.known = tuple(sorted(known))

    def __str__(self) -> str:
        return f"no format {self.name!r} here; there are {', '.join(self.known)}"


def record_format(name: str, view: View) -> RecordFormat:
    """The format of that name, bound to a view. Raises `UnknownFormatError`."""
    try:
        make = RECORD_FORMATS[name]
    except KeyError:
        raise UnknownFormatError(name) from None
    return make(view)


def summary_format(name: str, view: View) -> SummaryFormat:
    """The summary format of that name, bound to a view. Its groups come from `Fold(view, normalised=its.normalised)`.

    Raises `UnknownFormatError`, and `ValueError` for a version that the format has not.
    """
    if name not in SUMMARY_FORMATS:
        raise UnknownFormatError(name, SUMMARY_FORMATS)
    return SummaryFormat(view, normalised=name == "apel-normalised-summary")


def sync_format(view: View) -> SyncFormat:
    """The format of sync counts, bound to a view."""
    return SyncFormat(view)


def report_format(name: str, view: View) -> UtilizationFormat:
    """The report format of that name, bound to a view.

    Raises `UnknownFormatError`, and `ValueError` for a version that the format has not.
    """
    if name not in REPORT_FORMATS:
        raise UnknownFormatError(name, REPORT_FORMATS)
    return UtilizationFormat(view)
