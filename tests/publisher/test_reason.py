"""Reasons: each code has a sentence, and what is stored is codes and values, whatever they are."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.rule_codes import RULE_SENTENCES, CannotRenderError, Reason, RuleCode
from formats.rules import BY_KEY, key_of
from publisher.reason import ONLY_A_PERSON_RELEASES, SENTENCES, TRIED_AGAIN, ReasonCode, from_stored, sentence, stored

VALUES = st.text(max_size=30) | st.integers(-(2**63), 2**63 - 1)


def test_each_code_has_a_sentence_and_is_there_once() -> None:
    assert set(RULE_SENTENCES) == set(RuleCode)
    assert set(SENTENCES) == {*RuleCode, *ReasonCode}
    assert len({code.value for code in (*RuleCode, *ReasonCode)}) == len(RuleCode) + len(ReasonCode)
    assert set(ReasonCode) > TRIED_AGAIN | ONLY_A_PERSON_RELEASES
    assert not TRIED_AGAIN & ONLY_A_PERSON_RELEASES


@pytest.mark.parametrize("code", [*RuleCode, *ReasonCode])
def test_codes_are_words_with_hyphens(code: str) -> None:
    assert set(code) <= {*string.ascii_lowercase, *string.digits, "-"}


def test_rules_are_found_by_their_keys() -> None:
    for rule in BY_KEY.values():
        key = key_of(rule)
        assert key is not None
        assert BY_KEY[key] == rule


@given(st.sampled_from([*RuleCode, *ReasonCode]), st.dictionaries(st.sampled_from("abc"), VALUES))
def test_a_reason_is_the_same_after_it_was_stored(code: ReasonCode, values: dict[str, str | int]) -> None:
    reason = Reason.of(code, **values)
    code_text, parameters = stored(reason)
    assert stored(from_stored(code_text, parameters)) == (code_text, parameters)
    if all(value.isprintable() for value in values.values() if isinstance(value, str)):
        assert from_stored(code_text, parameters) == reason


@given(st.dictionaries(st.sampled_from(["field", "answer", "text", "rule", "length"]), VALUES))
def test_a_sentence_takes_any_value(values: dict[str, str | int]) -> None:
    for code in (RuleCode.TOO_LONG, ReasonCode.REFUSED, ReasonCode.WAIVED):
        assert isinstance(sentence(Reason.of(code, **values)), str)
    assert sentence(Reason.of(ReasonCode.REFUSED, answer="{field} {0}")) == "{field} {0}"


def test_a_code_of_another_version_is_shown_with_its_values() -> None:
    assert sentence(Reason("of-tomorrow", (("field", "Site"),))) == "of-tomorrow, field Site"
    assert sentence(None) == ""


def test_limits_come_from_the_rule() -> None:
    reason = Reason.of(RuleCode.TOO_LONG, field="Site", rule="car:Site", length=300)
    assert sentence(reason) == "Site: 300 characters; at most 255 (APEL column, 255 characters)"


def test_what_to_set_is_named_for_the_source_of_the_run() -> None:
    """A reason that an earlier version stored has no source."""
    error = CannotRenderError(RuleCode.NO_BENCHMARK, "ServiceLevel", taken="HEPSPEC", largest="9")
    assert sentence(error.reason_of("old")).endswith(
        "Set sources.old.benchmark, or a rule that matches in sources.old.benchmarks"
    )
    assert sentence(error.reason).endswith("Set `benchmark`, or a rule that matches in `benchmarks`, of the source")
    missing = CannotRenderError(RuleCode.MISSING, "Site")
    assert missing.reason_of("old") == missing.reason
