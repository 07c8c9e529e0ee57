"""Why a record cannot be rendered, as a code with parameters; the sentence is made when it is shown.

A code is stored and never changes its meaning. Parameters are field names, values, and the key of the receiver's rule
(`formats.rules`), from which the sentence takes the limit and its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from formats.rules import BY_KEY, Rule, key_of

Parameter = str | int


class RuleCode(StrEnum):
    """A rule of a format that a record breaks."""

    ADD_ON = "add-on"
    """A rule of an add-on's format; the parameter `text` is the add-on's message."""
    BAD_TIMES = "bad-times"
    CREATE_TIME = "create-time-out-of-range"
    END_BEFORE_START = "end-before-start"
    END_IN_FUTURE = "end-in-future"
    MISSING = "missing"
    MISSING_OR_NULL = "missing-or-null"
    NAME_OF_RESOURCE = "name-of-resource"
    NO_BENCHMARK = "no-benchmark"
    NO_CPU_TIME_IN_SLURM = "no-cpu-time-in-slurm"
    NO_HASH_KEY = "no-hash-key"
    NO_HOST_NAME = "no-host-name"
    NO_JOB_ID = "no-job-id"
    NO_SITE = "no-site"
    NOT_ASCII = "not-ascii"
    NOT_A_NUMBER = "not-a-number"
    NOT_HOST_NAME = "not-host-name"
    NOT_IN_SOURCE = "not-in-source"
    NOT_PUBLISHED = "status-not-published"
    OUT_OF_RANGE = "out-of-range"
    SAME_KEY = "same-key"
    SAME_ROW = "same-row"
    TOO_LONG = "too-long"
    TOO_MANY_BYTES = "too-many-bytes"
    SIGNED_CARRIAGE_RETURN = "signed-carriage-return"
    SIGNED_ENCRYPTED_TYPE = "signed-encrypted-type"
    SIGNED_NOT_ASCII = "signed-not-ascii"
    SIGNED_NUL = "signed-nul"
    UNUSABLE_BENCHMARK = "unusable-benchmark"


_NOT_IN_SOURCE: Final = "{field}: {the_source} does not have it, and the receiver needs it"
_SET_BENCHMARK: Final = "the receiver takes {taken} with a score from 0.001 to {largest}. Set {benchmark_settings}"
_OF_A_SOURCE: Final = {
    "the_source": "the source",
    "benchmark_settings": "`benchmark`, or a rule that matches in `benchmarks`, of the source",
}
"""The words for the source of a run of which only the record is known."""
UNSIGNABLE: Final[Mapping[RuleCode, str]] = {
    RuleCode.SIGNED_CARRIAGE_RETURN: "it has a carriage return without a line feed, which no signature survives",
    RuleCode.SIGNED_ENCRYPTED_TYPE: "it contains the text application/pkcs7-mime, so the receiver would take it as "
    "encrypted",
    RuleCode.SIGNED_NOT_ASCII: "it is not ASCII, which stops the receiver",
    RuleCode.SIGNED_NUL: "it has a NUL byte",
}
"""Why the receiver would reject a signed message, or stop at it."""
RULE_SENTENCES: Final[Mapping[str, str]] = {
    RuleCode.ADD_ON: "{field}: {text}",
    RuleCode.BAD_TIMES: "{field}: start {start} and end {end} must be from 1970 on, before the year 10000, and the end "
    "not before the start (APEL refuses the message)",
    RuleCode.CREATE_TIME: "{field}: {value} is outside the years 100 to 9999",
    RuleCode.END_BEFORE_START: "{field}: {end} is before the start, {start}",
    RuleCode.END_IN_FUTURE: "{field}: {end} is in the future (APEL refuses the message)",
    RuleCode.MISSING: "{field}: missing",
    RuleCode.MISSING_OR_NULL: "{field}: missing, or a word that the server reads as missing",
    RuleCode.NAME_OF_RESOURCE: "{field}: Open XDMoD compares only {longest} characters of a resource, and {value} has "
    "more. Set `machine_name` of the target to the name of the resource, and `sources` if there are several clusters",
    RuleCode.NO_BENCHMARK: "{field}: the job has no usable benchmark; " + _SET_BENCHMARK,
    RuleCode.NO_CPU_TIME_IN_SLURM: _NOT_IN_SOURCE
    + ". Read the jobs from sacct, or from a table with a header line, the column TotalCPU, and the lines of the "
    "steps. CPUTimeRAW is the time that was allocated, not the time that was used; a completion log has no CPU time",
    RuleCode.NO_HASH_KEY: "{field}: the setting `dn` of the target hashes names, and `dn_key` is not set",
    RuleCode.NO_HOST_NAME: "{field}: the job has no endpoint and no cluster. Set `machine_name` of the target",
    RuleCode.NO_JOB_ID: "{field}: the job has neither a local id nor a global id",
    RuleCode.NO_SITE: "{field}: the site has no name in the configuration",
    RuleCode.NOT_ASCII: "{field}: {value} is not ASCII, and `ascii_names` does not change values in APEL's key",
    RuleCode.NOT_A_NUMBER: "{field}: {value} is not a job number, with an array index or without, as Open XDMoD needs "
    "it. Waive it, or leave out such jobs (`sources`, `statuses` of the target)",
    RuleCode.NOT_HOST_NAME: "{field}: {value} is not a host name, or longer than {longest} characters. Set "
    "`machine_name` of the target",
    RuleCode.NOT_IN_SOURCE: _NOT_IN_SOURCE,
    RuleCode.NOT_PUBLISHED: "{field}: a job that is {status} is not published",
    RuleCode.OUT_OF_RANGE: "{field}: {value} is not in {least}..{largest} ({source})",
    RuleCode.SAME_KEY: (
        "LocalJobId: this job of source {source} and {first_record_id} of source {first_source} have the same site, "
        "local id {local_id}, and end time, which are APEL's key of a job record: this record would replace the other. "
        "If both are the same job, waive this one. If not, set `local_id_prefix` of one of the sources; this one is "
        "then tried again. If the other is rejected or waived, name this one to `usage-publisher records retry`"
    ),
    RuleCode.SAME_ROW: (
        "JobID: this job of source {source} and {first_record_id} of source {first_source} have the same resource, job "
        "number, submission, and end, which are Open XDMoD's key, and it ignores the second without a word. If both "
        "are the same job, waive this one. If not, publish each cluster as a resource of its own: a target for each, "
        "with `sources` and `machine_name`"
    ),
    RuleCode.TOO_LONG: "{field}: {length} characters; at most {longest} ({source})",
    RuleCode.TOO_MANY_BYTES: "{field}: {length} bytes in UTF-8; at most {longest_bytes} (the index of {source})",
    **{code: f"{{field}}: no message with this record can be signed: {why}" for code, why in UNSIGNABLE.items()},
    RuleCode.UNUSABLE_BENCHMARK: "{field}: {unusable} is not a usable benchmark; " + _SET_BENCHMARK,
}


class Reason(msgspec.Struct, frozen=True, array_like=True):
    """Why a record is in its state: a code, and parameters by name in alphabetical order."""

    code: str
    parameters: tuple[tuple[str, Parameter], ...] = ()

    @staticmethod
    def of(code: StrEnum, **parameters: Parameter) -> Reason:
        """A reason with these parameters."""
        return Reason(code.value, tuple(sorted(parameters.items())))

    def filled_in(self, sentences: Mapping[str, str]) -> str:
        """The sentence of this reason, from sentences by code; for an unknown code, the code and parameters."""
        values = dict(self.parameters)
        rule = BY_KEY.get(str(values.pop("rule", "")))
        known = msgspec.structs.asdict(rule) if rule is not None else {}
        of_source = _words_for(str(values["source"])) if "source" in values else _OF_A_SOURCE
        try:
            return sentences[self.code].format_map({**known, **of_source, **values})
        except KeyError:  # a code, or a rule, of another version of the program
            return ", ".join([self.code, *(f"{name} {value}" for name, value in self.parameters)])


def _words_for(source: str) -> dict[str, str]:
    settings = f"sources.{source}.benchmark, or a rule that matches in sources.{source}.benchmarks"
    return {"the_source": f"source {source}", "benchmark_settings": settings}


def _named(rule: Rule) -> dict[str, Parameter]:
    """A rule as parameters: its key, or its limits and source if it belongs to an add-on."""
    key = key_of(rule)
    if key is not None:
        return {"rule": key}
    return {name: value for name, value in msgspec.structs.asdict(rule).items() if name != "field"}


_NAMES_SOURCE: Final = frozenset({
    RuleCode.NO_BENCHMARK, RuleCode.NO_CPU_TIME_IN_SLURM, RuleCode.NOT_IN_SOURCE, RuleCode.UNUSABLE_BENCHMARK
})  # fmt: skip
"""The rules whose sentence names the source of the run, if it is known."""


class CannotRenderError(ValueError):
    """A value that the format requires is missing or unusable. The record is held with this reason."""

    def __init__(self, code: StrEnum, field: str, rule: Rule | None = None, **parameters: Parameter) -> None:
        """`rule`: the receiver's rule that is broken, if it is one of `formats.rules`."""
        if rule is not None:
            parameters |= _named(rule)
        self.field = field
        self.reason = Reason.of(code, field=field, **parameters)
        super().__init__(self.reason.filled_in(RULE_SENTENCES))

    def reason_of(self, source: str) -> Reason:
        """The reason for a run of the source with this name."""
        if self.reason.code not in _NAMES_SOURCE:
            return self.reason
        return Reason(self.reason.code, tuple(sorted([*self.reason.parameters, ("source", source)])))
