"""The suite of a format: what its descriptor promises, with ordinary and with hostile runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import msgspec
import pytest

from formats.base import Format, Rendered
from formats.job import Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from publisher.plugins import format_of, record_format, totals_format
from publisher.testing.jobs import HOSTILE, NOVEMBER, OCTOBER, make_job
from publisher.testing.targets import NOT_APPLICABLE

_CREATED: Final = NOVEMBER + 86_400
_TEXTS: Final = (
    "local_id", "global_id", "name", "user_dn", "vo", "local_user", "local_group", "project", "account", "queue",
    "cluster", "endpoint_url", "client_host", "end_reason", "array_id",
)  # fmt: skip
"""Facts of a run that users and batch systems write."""
_NUMBERS: Final = ("end", "start", "submit", "wall_ms", "cpu_ms", "cores", "nodes", "gpus", "exit_code")
_SPECIAL: Final = (-1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -62_135_596_800, 253_402_300_800, None)


class FormatSuite:
    """Subclass it as `TestMine` with the name of the format, or its descriptor."""

    name: ClassVar[str]
    """The name under which it is installed."""
    view: ClassVar[View] = View(site="EXAMPLE-SITE")
    examples: ClassVar[int] = 300
    """Random runs with hostile texts and numbers."""

    @pytest.fixture
    def form(self) -> Format:
        """The descriptor."""
        return format_of(self.name)

    def jobs(self) -> Sequence[Job]:
        """Runs that the format can render, with different record ids."""
        facts: tuple[dict[str, Any], ...] = ({}, {"cores": 8, "nodes": 2}, {"queue": "long"}, {"user_dn": "/CN=Bo"})
        return [
            make_job(number, end=month + 3600 * number, **facts[number % len(facts)])
            for number, month in enumerate((OCTOBER, NOVEMBER) * 6, 1)
        ]

    # --- records

    def test_rendering_is_deterministic(self, form: Format) -> None:
        """The same bytes whenever, and in whatever order, runs are rendered."""
        jobs = list(self.jobs())
        first = self._bodies(form, jobs)
        random.Random(1).shuffle(jobs)  # noqa: S311 - an order, not a secret
        assert sorted(self._bodies(form, jobs)) == sorted(first)

    def test_a_message_has_the_size_that_is_reckoned(self, form: Format) -> None:
        """Batches are cut by `overhead_bytes` and `separator_bytes`: the size of a message follows from them."""
        bound, bodies = self._bound(form), self._bodies(form, list(self.jobs()))
        for count in (1, 2, len(bodies)):
            reckoned = bound.overhead_bytes + sum(map(len, bodies[:count])) + bound.separator_bytes * (count - 1)
            assert len(bound.message(bodies[:count])) == reckoned

    def test_what_is_written_is_read(self, form: Format) -> None:
        """The records of a message, read back, are those that were written."""
        jobs = list(self.jobs())
        message = self._bound(form).message(self._bodies(form, jobs))
        if form.totals is not None:
            self._requires(form.totals.read is not None, "its messages are not evidence (read is None)")
            assert form.totals.read is not None
            assert {total.key.text for total in form.totals.read(message)} == {
                total.key.text for total in self._totals(form, jobs)
            }
            return
        self._requires(form.columns is not None, "its messages are not read back (columns is None)")
        assert form.columns is not None
        read = form.columns(message)
        rendered = [self._record(form, job) for job in jobs]
        if any(record.record_id for record in rendered):
            assert [record.record_id for record in read] == [record.record_id for record in rendered]
        assert [record.wall_ms for record in read] == [job.wall_ms for job in jobs]

    def test_a_message_is_cut_into_the_records_that_it_was_made_of(self, form: Format) -> None:
        """`pieces` of a message give the records, byte by byte."""
        self._requires(form.pieces is not None, "messages are not cut (pieces is None)")
        assert form.pieces is not None
        bodies = self._bodies(form, list(self.jobs()))
        assert [piece.body for piece in form.pieces(self._bound(form).message(bodies))] == bodies

    def test_a_message_is_inspected_as_itself(self, form: Format) -> None:
        """`inspected` finds the records of a message, and no rule that one breaks."""
        self._requires(form.inspected is not None, "its messages are not inspected (inspected is None)")
        assert form.inspected is not None
        bodies = self._bodies(form, list(self.jobs()))
        inspected = form.inspected(self._bound(form).message(bodies).decode())
        assert inspected is not None
        assert [record.number for record in inspected.records] == [*range(1, len(bodies) + 1)]
        assert not list(inspected.violations)

    def test_hostile_runs_are_rendered_or_held(self, form: Format) -> None:
        """Whatever a user or a batch system wrote: a record of its own in the message, or a reason, and no exception
        of another kind."""
        bound, plain = self._bound(form), list(self.jobs())[:1]
        before, after = self._bodies(form, plain), self._bodies(form, plain)
        rendered = 0
        for job in self._hostile():
            try:
                bodies = self._bodies(form, [job])
            except CannotRenderError:  # with the reason with which the run is held
                continue
            rendered += 1
            message = bound.message([*before, *bodies, *after])
            if form.columns is not None:
                assert len(form.columns(message)) == 3, f"a text makes further records: {job!r}"
            elif form.totals is not None and form.totals.read is not None:
                assert len(form.totals.read(message)) == 2 + len(bodies), f"a text makes further totals: {job!r}"
        assert rendered, "every hostile run was held"

    # --- totals

    def test_totals_do_not_depend_on_order_or_parts(self, form: Format) -> None:
        """Runs in any order, and totals that are merged, give the same totals."""
        kind = self._totals_kind(form)
        jobs = list(self.jobs())
        whole = [(total.key.text, total.digest) for total in self._totals(form, jobs)]
        assert whole == [(total.key.text, total.digest) for total in self._totals(form, jobs[::-1])]
        merged = kind.fold(self.view)
        for part in (jobs[::2], jobs[1::2]):
            for total in self._totals(form, part):
                merged.merge_group(total)
        assert whole == [(total.key.text, total.digest) for total in merged.groups()]

    def test_totals_survive_the_store(self, form: Format) -> None:
        """A total is the same after it was stored; without runs it has none, under the same key."""
        kind = self._totals_kind(form)
        for total in self._totals(form, list(self.jobs())):
            stored = kind.from_json(total.to_json())
            assert (stored.key.text, stored.digest, stored.jobs) == (total.key.text, total.digest, total.jobs)
            assert (total.zeroed.key.text, total.zeroed.jobs) == (total.key.text, 0)
            assert total.zeroed.digest != total.digest

    # ---

    @staticmethod
    def _requires(applies: bool, why: str) -> None:
        if not applies:
            pytest.skip(f"{NOT_APPLICABLE}: {why}")

    def _totals_kind(self, form: Format) -> Any:
        self._requires(form.totals is not None, f"its shape is {form.shape}")
        return form.totals

    def _bound(self, form: Format) -> Any:
        return (record_format if form.shape == "record" else totals_format)(form.name, self.view)

    def _record(self, form: Format, job: Job) -> Rendered:
        rendered: Rendered = self._bound(form).record(job, _CREATED)
        return rendered

    def _totals(self, form: Format, jobs: Sequence[Job]) -> list[Any]:
        fold = self._totals_kind(form).fold(self.view)
        for job in jobs:
            fold.add(job)
        return list(fold.groups())

    def _bodies(self, form: Format, jobs: Sequence[Job]) -> list[bytes]:
        bound = self._bound(form)
        if form.shape == "record":
            return [bound.record(job, _CREATED).body for job in jobs]
        return [bound.record(total).body for total in self._totals(form, jobs)]

    def _hostile(self) -> Iterator[Job]:
        chance = random.Random(2)  # noqa: S311 - a schedule that can be repeated, not a secret
        usual = list(self.jobs())
        for text in HOSTILE:
            yield msgspec.structs.replace(usual[0], **dict.fromkeys(_TEXTS[2:6], text))
        for _ in range(self.examples):
            facts: dict[str, Any] = {name: chance.choice(HOSTILE) for name in chance.sample(_TEXTS, 3)}
            facts |= {name: chance.choice(_SPECIAL) for name in chance.sample(_NUMBERS, chance.randint(0, 2))}
            yield msgspec.structs.replace(chance.choice(usual), **facts)
