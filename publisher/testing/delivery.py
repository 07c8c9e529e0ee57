"""A site with the target that is tested, and the judgement of what its service has."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from annotated_types import Le

from formats.calendar import SECONDS_A_DAY, Month
from formats.job import Job
from formats.rule_codes import CannotRenderError, Reason
from publisher.config.targets import TargetSettings
from publisher.messages.recipient import Recipient
from publisher.plugins import record_format, totals_format
from publisher.reason import ReasonCode, sentence
from publisher.reconcile.result import Difference
from publisher.store.schema import State
from publisher.targets import make_target
from publisher.targets.base import Message, Outcome, Oversized, Target, Throttled, Transient, Unauthorised, Unknown
from publisher.targets.identity import TargetContext
from publisher.testing.jobs import NOVEMBER, OCTOBER, make_job
from publisher.testing.memory import ListSource
from publisher.testing.postgresql import DatabaseServer
from publisher.testing.services import Exports, Fails, KeepsTime, Refuses, Service
from publisher.testing.site import FolderSite

NAME: Final = "tested"
VO, OTHER_VO = "atlas", "cms"
"""The target is configured to select the first."""
ANSWERS: Final[Mapping[str, Outcome]] = {
    "transient": Transient("a fault: HTTP 503"),
    "throttled": Throttled("a fault: HTTP 429", None),
    "unauthorised": Unauthorised("a fault: HTTP 403"),
    "oversized": Oversized("a fault: HTTP 413"),
    "never sent": Unknown("a fault: connection refused"),
    "lost": Unknown("a fault: the answer was lost"),
}
"""Outcomes that take the place of the target's own. `lost`: the message was sent; of the others it was not."""
FAULTS: Final = ("400", "401", "403", "413", "429", "500", "503", "cut", "stored")
"""Faults of single requests."""
_KEY_CHANGED: Final = sentence(Reason.of(ReasonCode.KEY_CHANGED))
_MONTHS: Final = (Month(2026, 10), Month(2026, 11))


class DeliverySite(FolderSite):
    """See the module. `outcomes`: names of `ANSWERS`, or empty, for the next messages."""

    def __init__(
        self,
        folder: Path,
        service: Service,
        value: Callable[[bytes], Any],
        server: DatabaseServer | None,
        complete: Callable[[Job], Job] = lambda job: job,
        **more: Any,
    ) -> None:
        """`value`: of a record as written, as the content of the service has it; `complete`: gives a run the facts that
        the target needs; `more`: settings of the target."""
        self.source = ListSource("ce1", page=3)
        super().__init__(folder, [self.source], server, server.new_database() if server is not None else "")
        self.service = service
        self._value = value
        self._complete = complete
        if isinstance(service, KeepsTime):
            service.now = lambda: self.now
        self.outcomes: list[str] = []
        self.messages: list[Message] = []
        self.limits: set[int | None] = set()
        self._lock = threading.Lock()
        usual = {"attempts": 1, "workers": 1, "batch_records": 2, "vo": [VO]}
        self.table["targets"][NAME] = dict(service.settings)
        self.configure(NAME, **{**usual, **service.settings, **more})
        self.make_target = self._watched

    def configure(self, target: str, **settings: Any) -> None:
        """As `FolderSite.configure`; but never more records in a message than the kind of target allows."""
        settings_class = type(self.target_settings)
        for limit in settings_class.model_fields["batch_records"].metadata:
            if isinstance(limit, Le) and "batch_records" in settings:
                settings["batch_records"] = min(settings["batch_records"], limit.le)
        super().configure(target, **settings)

    @property
    def target_settings(self) -> TargetSettings:
        """The settings of the target."""
        settings: TargetSettings = self.config.targets[NAME]
        return settings

    def _watched(self, name: str, settings: Any, context: TargetContext) -> Target:
        if isinstance(self.service, KeepsTime):
            context = msgspec.structs.replace(context, clock=self.service.now)
        target = make_target(name, settings, context)
        own_post = target.post

        def post(message: Message) -> Outcome:
            with self._lock:
                self.limits.add(target.payload_limit_bytes())
                self.messages.append(message)
                instead = ANSWERS.get(self.outcomes.pop(0) if self.outcomes else "")
            if isinstance(instead, Oversized) and len(message.record_ids) < 2:
                instead = None
            if instead is not None and instead is not ANSWERS["lost"]:
                return instead
            outcome = own_post(message)
            return outcome if instead is None else instead

        target.post = post  # type: ignore[method-assign]
        return target

    # --- what happens

    def add(self, *jobs: Job) -> None:
        """Let the source have these runs, or new versions of them."""
        self.source.add(*map(self._complete, jobs))

    def collect_and_publish(self) -> None:
        """One run of the program, without reconciliation."""
        self.collect()
        self.publish()

    def heal(self) -> None:
        """No more faults."""
        self.outcomes.clear()
        if isinstance(self.service, Fails):
            self.service.fail(())
        if isinstance(self.service, Refuses):
            self.service.refuse(())

    def settle(self) -> None:
        """Everything works, and all that is due is sent."""
        self.heal()
        self.now += SECONDS_A_DAY
        for _ in range(3):
            self.collect_and_publish()
        # a fault looked like a refusal of the record, or of a total of which no run waits
        if self.in_state(NAME, State.REJECTED) or self.publisher.status().targets[NAME].totals_rejected:
            self.republish(NAME, OCTOBER, NOVEMBER + 30 * SECONDS_A_DAY)

    # --- what is there

    def jobs(self) -> dict[str, Job]:
        """The last version of each run that was collected."""
        return {job.record_id: job for job in self.source.log if isinstance(job, Job)}

    def keys(self) -> list[str]:
        """The keys of the records that are accepted, or of the totals, that the service has."""
        keys = self.content().keys()
        is_totals = self.target_settings.format.shape == "totals"
        return sorted(keys if is_totals else keys & self.in_state(NAME, State.ACCEPTED))

    def content(self) -> dict[str, Any]:
        """What the service has, each key once."""
        pairs = list(self.service.content())
        twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        assert not twice, f"the service counts twice: {twice[:5]}"
        return dict(pairs)

    def judge(self) -> None:
        """The service has what the ledger says: nothing is lost, doubled, or stale. Call it after `settle`."""
        self.assert_counters_right()
        recipient = Recipient(self.publisher.store, self.config, NAME)
        if recipient.format.shape == "totals":
            self._judge_totals(recipient)
        else:
            self._judge_records(recipient)

    def judge_claims(self) -> None:
        """The service has each record that the ledger calls accepted, whatever else is under way. Call it at any
        time."""
        recipient = Recipient(self.publisher.store, self.config, NAME)
        if recipient.format.shape == "totals":
            return  # runs of a total are accepted with it, and a later version may have less
        form, content = record_format(recipient.format_name, recipient.view), self.content()
        accepted = self.in_state(NAME, State.ACCEPTED)
        for job in self.jobs().values():
            if job.record_id in accepted:
                key = job.record_id
                with suppress(CannotRenderError):  # by the present settings it would be held
                    key = form.record(job, self.now).record_id or key
                assert key in content, f"{key} is accepted, and the service does not have it"

    def _judge_records(self, recipient: Recipient) -> None:
        form = record_format(recipient.format_name, recipient.view)
        stored_at = dict(self.rows("SELECT record_id, stored_at FROM runs"))
        states, reasons, content = self.states(NAME), self.reasons(NAME), self.content()
        for job in self.jobs().values():
            state = states.get(job.record_id)
            rendered = form.record(job, stored_at[job.record_id])
            key = rendered.record_id or job.record_id
            if state is None:
                assert (job.vo, key in content) == (OTHER_VO, False), f"{key} is not in the ledger"
            elif state is State.ACCEPTED:
                assert key in content, f"{key} is lost"
                assert content.pop(key) == self._value(rendered.body), f"{key} is stale at the service"
            elif state is State.HELD and recipient.format.record_key is not None:
                # The service identifies runs by what changed: it would count the new version beside the first one.
                assert reasons[job.record_id] == _KEY_CHANGED, f"{key} is held: {reasons[job.record_id]}"
                versions = [form.record(version, stored_at[job.record_id]) for version in self._versions(job)]
                sent = [None, *(self._value(version.body) for version in versions)]
                assert content.pop(key, None) in sent, f"the service has another version of {key}"
                assert len({version.end for version in self._versions(job)}) > 1, (
                    f"{key} is held, and its end never changed"
                )
            else:
                assert state is State.SUPERSEDED, f"{key} is {state.word}"
                assert reasons[job.record_id], f"nothing says why {key} is superseded"
                was_sent = content.pop(key, None) is not None
                assert was_sent or self._may_never_have_left(job), f"{key} is superseded, and the service has none"
        assert not content, f"no run explains what the service has: {sorted(content)[:5]}"

    def _may_never_have_left(self, job: Job) -> bool:
        """Whether a superseded run need not be at the service: it was deselected with an unknown outcome, and is so
        still, or is another version than was sent where the first one is kept. Somebody must decide about it."""
        if job.vo == OTHER_VO or self.target_settings.second_version.sends_changed:
            return job.vo == OTHER_VO
        as_sent = "SELECT 1 FROM deliveries JOIN runs ON id = run_id WHERE record_id = ? AND sent_digest = digest"
        was_deselected = any(version.vo == OTHER_VO for version in self._versions(job))
        return was_deselected and not self.rows(as_sent, job.record_id)

    def _versions(self, job: Job) -> list[Job]:
        """All versions of a run that the source gave."""
        return [each for each in self.source.log if isinstance(each, Job) and each.record_id == job.record_id]

    def _judge_totals(self, recipient: Recipient) -> None:
        form, kind = totals_format(recipient.format_name, recipient.view), recipient.format.required_totals
        fold = kind.fold(recipient.view)
        for job in self.jobs().values():
            if job.vo == VO:
                fold.add(job)
        selected = {name for name, job in self.jobs().items() if job.vo == VO}
        assert self.in_state(NAME, State.ACCEPTED) == selected, "runs that no accepted total contains"
        expected = {total.key.text: self._value(form.record(total).body) for total in fold.groups()}
        assert self.content() == expected, "the totals at the service are not those of the runs"

    def differences(self) -> list[Difference]:
        """What a reconciliation lists, without runs that are superseded."""
        self._export()
        with self.publisher.reconcile([NAME], _MONTHS) as result:
            outcome = result.targets[NAME]
            assert outcome.unavailable is None, outcome.unavailable
            assert not outcome.busy
            return [
                difference
                for difference in result.differences(NAME)
                if difference.kind not in {"superseded", "unsettled", "outdated"}
            ]

    def _export(self) -> None:
        if isinstance(self.service, Exports):
            self.service.export()

    def differing(self, key: str) -> int:
        """How many differences a reconciliation lists, that of this record among them. Where the service gives sums
        only, all suspect jobs of a sum are one; of a total, all that differs is one."""
        listed = self.differences()
        if self.target_settings.evidence_source == "query":
            return len({each.detail for each in listed})
        if self.target_settings.format.shape == "totals":
            return len({(each.month, each.record) for each in listed})
        assert key in {each.record for each in listed}, f"{key} is not listed"
        return len(listed)

    def confirmed(self) -> tuple[int, int]:
        """How many runs a reconciliation confirms, and how many are accepted."""
        self._export()
        with self.publisher.reconcile([NAME], _MONTHS) as result:
            months = result.targets[NAME].months
            accepted = sum(month.states[State.ACCEPTED] for month in months)
            return sum(month.confirmed for month in months), accepted


class RandomHistory:
    """A random history of a site: late, changed, and vanished runs, faults, kills, and another host beside it."""

    def __init__(self, site: DeliverySite, seed: int) -> None:
        self.site = site
        self.chance = random.Random(seed)  # noqa: S311 - a schedule that can be repeated, not a secret
        self._numbers: set[int] = set()
        site.configure(
            NAME,
            attempts=self.chance.randint(1, 2),
            workers=self.chance.randint(1, 3),
            batch_records=self.chance.randint(1, 5),
        )

    def step(self) -> None:
        """Runs turn up, faults are prepared, and the program runs; it may die at any event."""
        chance, site = self.chance, self.site
        for _ in range(chance.randint(0, 4)):
            site.add(self._job())
        if isinstance(site.service, Fails):
            site.service.fail(chance.choices(("", *FAULTS), k=chance.randint(0, 4)))
        site.outcomes = chance.choices(("", "", *ANSWERS), k=chance.randint(0, 2))
        actions: Sequence[Callable[[], object]] = (site.publisher.run, site.publish, site.collect_and_publish)
        action = chance.choice(actions)
        if chance.random() < 0.5:
            site.killed_at(chance.randint(0, 12), action)
        else:
            action()
        site.judge_claims()
        site.now += chance.choice((60, 90_000))

    def step_beside_another_host(self) -> None:
        """The same, while another process at the site publishes at some event."""
        chance, site = self.chance, self.site
        other = DeliverySite.beside(site)
        events = iter(range(1_000_000))
        moment = chance.randint(0, 8)

        def watch(_event: object) -> None:
            if next(events) == moment:
                other.publish()
                other.reopen()

        site.watch = watch
        try:
            self.step()
        finally:
            site.watch = lambda _event: None

    def _job(self) -> Job:
        """A new run, also a late one, or a new version of one, which may be the first one again."""
        chance = self.chance
        number = chance.randint(1, 12)
        end = chance.choice((OCTOBER, NOVEMBER)) + 3600 * number
        facts: Mapping[str, Any] = {}
        if number in self._numbers:
            facts = chance.choice(
                (
                    {},
                    {"wall_s": 50, "cpu_ms": 50_000, "end": end - 50},
                    {"cores": 8},
                    {"cpu_ms": 7},
                    {"vo": OTHER_VO},
                    {"wall_s": 50},
                    {"end": NOVEMBER + 77 + number},
                )
            )
        self._numbers.add(number)
        return make_job(number, **{"end": end, **facts})
