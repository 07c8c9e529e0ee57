"""shadow: compare what a target would send with what an earlier publisher sent, and take over from it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli import completion, options
from publisher.cli.exit_code import DONE, REJECTED
from publisher.cli.output import data, json_object, say
from publisher.cli.publish_cmd import dry_run_json, dry_run_of
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import UsageError
from publisher.reason import sentence
from publisher.text import counted, iso, safe, unknown_name

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.migrate.old_records import OldRecords
    from publisher.migrate.shadow import Kind, ShadowComparison, ShadowRecord

_SHOWN = 20
_DAY_S = 86400


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("shadow")(shadow)


def shadow(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Target with `shadow = true`.", autocompletion=completion.targets)
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="PATH",
            help="Its messages (files, folders, SSM's queue), or an export of its database. Repeatable.",
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    month: Annotated[
        str | None,
        typer.Option("--month", metavar="MONTH", help="A whole month: 2026-11.", autocompletion=completion.months),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Record as delivered what the earlier publisher sent. Stop it first."),
    ] = False,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="With --take-over: the export has all that was sent, as APEL's own list has."),
    ] = False,
    delivered_until: Annotated[
        str | None,
        typer.Option(
            "--delivered-until",
            metavar="TIME",
            help="With --take-over: it sent all jobs that ended before this time.",
        ),
    ] = None,
) -> None:
    """Compare the records for a target with those that an earlier publisher sent, and explain the differences.

    Nothing is sent, and nothing changes without --take-over.
    """
    window = options.month_window(month, since, until)
    assumed = options.moment(delivered_until, "--delivered-until")
    if assumed is not None and not take_over:
        raise UsageError("--delivered-until needs --take-over")
    if complete and not (take_over and against):
        raise UsageError("--complete needs --take-over and --against")
    if window != (None, None) and not against:
        hint = f"For a window of what waits: usage-publisher render FORMAT --target {target}"
        raise UsageError("--since, --until, and --month need --against", hint=hint)
    with session.publisher() as publisher:
        if target not in publisher.config.targets:
            raise UsageError(unknown_name("target", target, publisher.config.targets))
        if take_over:
            _require_shadow(publisher, target, bool(against), assumed)
        if against:
            takes_over = take_over and assumed is None
            code = _compare(publisher, target, against, window, take_over=takes_over, is_complete=complete)
        elif not take_over:
            code = _rehearse(publisher, target)
        if take_over and assumed is not None:
            code = _take_over_until(publisher, target, assumed)
    raise typer.Exit(code)


def _require_shadow(publisher: Publisher, target: str, compared: bool, until: int | None) -> None:
    settings = publisher.config.targets[target]
    if not settings.shadow:
        raise UsageError(
            f"{target} is not a shadow: records are sent to it",
            hint="Set `shadow = true` before its first run",
        )
    if until is None and not compared:
        raise UsageError("--take-over needs --against or --delivered-until", hint="They say what was sent")
    if until is None and settings.format.shape == "report":
        raise UsageError(
            f"messages of {settings.records} do not say which jobs they contain", hint="Add --delivered-until"
        )


def _rehearse(publisher: Publisher, target: str) -> int:
    """Render and check everything that waits."""
    dry_run = dry_run_of(publisher, target)
    if session.json:
        json_object(dry_run_json(dry_run))
    else:
        for rule in dry_run.broken_rules[:_SHOWN]:
            say(f"message {rule.message}: {rule.record or 'as a whole'}: {rule.field} {rule.rule} [{rule.source}]")
        for item in dry_run.held[:_SHOWN]:
            say(f"held: {item.record_id}: {sentence(item.reason)}")
        more = sum(max(0, len(listed) - _SHOWN) for listed in (dry_run.broken_rules, dry_run.held))
        if more:
            say(f"(and {more:,} more; --json lists all)")
        data(
            f"{counted(dry_run.records, 'record')} in {counted(dry_run.messages, 'message')}, "
            f"{counted(dry_run.bytes, 'byte')}; {len(dry_run.held):,} held"
        )
        if not publisher.config.targets[target].shadow:
            say(f"{target} is not a shadow: `usage-publisher publish {target}` sends this")
    return REJECTED if dry_run.broken_rules else DONE


def _compare(
    publisher: Publisher,
    target: str,
    against: list[Path],
    window: tuple[int | None, int | None],
    *,
    take_over: bool,
    is_complete: bool,
) -> int:
    from publisher.migrate.old_records import OldRecords  # noqa: PLC0415
    from publisher.migrate.shadow import NOTHING_CHANGED, ShadowComparison  # noqa: PLC0415
    from publisher.publish.decide import DeliveredBefore  # noqa: PLC0415
    from publisher.sources.base import Window  # noqa: PLC0415

    settings = publisher.config.targets[target]
    publisher.rendering(settings.records, target, Window())  # raises where nothing was collected yet
    sources = settings.sources or publisher.config.sources
    only_slurm = all(publisher.config.sources[name].kind.apel_sends_steps for name in sources)
    keeps_first = not settings.second_version.replaces
    with OldRecords(settings.records, keeps_first=keeps_first, only_slurm=only_slurm) as old:
        old.read(against, int(time.time()))
        if not old.count:
            for note in old.notes[:_SHOWN]:
                say(note)
            if len(old.notes) > _SHOWN:
                say(f"(and {len(old.notes) - _SHOWN:,} more)")
            raise UsageError(
                f"--against names no record of {settings.records}",
                hint="An empty export? Export all rows: `LastUpdated` of the APEL client does not show what "
                "`interval = gap` and `all` sent",
            )
        now = publisher.tools.clock()
        from_table = old.job_counts.is_listed and settings.format.shape == "record"
        everything = (0, now + 1) if take_over and from_table else None
        comparison = ShadowComparison(
            publisher.store, publisher.config, target, old, _window(old, window, everything), now
        )
        if take_over:
            comparison.require_own_sites()
        shown = _Shown(comparison, old)
        shown.read()
        shown.finish()
        for zone in comparison.wrong_zones():
            if take_over:
                raise UsageError(zone.text, hint=f"{NOTHING_CHANGED} {zone.remedy}")
            say(f"{zone.text}. {zone.remedy}")
        if take_over:
            comparison.require_complete(*window, is_assured=is_complete)
        summaries = take_over and settings.format.shape == "totals"
        groups = comparison.groups_to_take_over() if summaries else []
        if take_over:
            evidence = f"they are in {', '.join(str(path) for path in against)}"
            moved = publisher.take_over(target, DeliveredBefore(old.delivered(), groups, settings.format), evidence)
    if take_over:
        if summaries:
            say(
                f"{counted(moved, 'group')} recorded as sent by the earlier publisher; they are replaced when "
                f"`shadow` is removed from [targets.{target}]"
            )
        else:
            _say_taken_over(target, moved)
    return REJECTED if shown.unexplained or (shown.twice and not take_over) else DONE


def _window(
    old: OldRecords, given: tuple[int | None, int | None], everything: tuple[int, int] | None
) -> tuple[int, int]:
    """The window given; where it is open, `everything`, or as far as the other's records reach."""
    bounds = old.bounds()
    if bounds is not None and everything is not None:  # what is sent after the take-over is compared
        bounds = min(bounds[0], everything[0]), max(bounds[1], everything[1])
    begin, end = given
    if bounds is None and (begin is None or end is None):
        raise UsageError("the records have no end times", hint="Add --month, or --since and --until")
    first, last = bounds or (0, 0)
    return (first if begin is None else begin), (last + 1 if end is None else end)


class _Shown:
    """Counts and lists the differences of a comparison, and prints them at the end."""

    def __init__(self, comparison: ShadowComparison, old: OldRecords) -> None:
        self._comparison = comparison
        self._old = old
        self._fields: Counter[str] = Counter()
        self._examples: dict[str, tuple[str, str | None, str | None, str]] = {}
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._listed: list[ShadowRecord] = []
        self._twice: list[ShadowRecord] = []
        self._ambiguous: list[ShadowRecord] = []
        self.unexplained = 0
        self.twice = 0

    def read(self) -> None:
        """Count all records of the comparison."""
        for record in self._comparison.records():
            self._count(record)

    def _count(self, each: ShadowRecord) -> None:
        for field in each.fields:
            self._fields[field.field] += 1
            self._examples.setdefault(field.field, (field.reason, field.theirs, field.ours, each.record))
        if each.kind in {"only here", "only there"}:
            self._reasons[each.kind, each.reason] += 1
        if each.kind == "only there" or not each.explained:
            self.unexplained += 1
        if each.would_count_twice:
            self.twice += 1
            if len(self._twice) < _SHOWN:
                self._twice.append(each)
        if each.same_as is not None:
            self._ambiguous.append(each)
        if (each.kind != "same" or each.same_as is not None) and (session.json or len(self._listed) < _SHOWN):
            self._listed.append(each)

    def finish(self) -> None:
        """Print the totals."""
        counts: dict[Kind, int] = {kind: self._comparison.counts[kind] for kind in _KINDS}
        if session.json:
            fields = {
                name: {
                    "records": self._fields[name],
                    "reason": reason,
                    "theirs": theirs,
                    "ours": ours,
                    "record": record,
                }
                for name, (reason, theirs, ours, record) in self._examples.items()
            }
            sent = {"records": self._old.count, "sent_again": self._old.again, "notes": self._old.notes}
            json_object(
                {
                    **_named(counts), "would_count_twice": self.twice, "fields": fields, "other": sent,
                    "records": self._listed,
                }
            )  # fmt: skip
            return
        self._show_keys()
        rows: list[list[object]] = [
            [name, count, reason or "not explained", _value(theirs), _value(ours)]
            for name, count in self._fields.most_common()
            for reason, theirs, ours, _record in [self._examples[name]]
        ]
        if rows:
            show_table("Fields that differ", ["field", "records", "reason", "theirs", "ours"], rows, right={"records"})
        for (kind, reason), count in self._reasons.most_common():
            data(safe(f"{kind}: {count}: {reason}"))
        for each in self._listed:
            if each.kind in {"only here", "only there"}:
                data(safe(f"  {each.kind}: {each.record}: {each.reason}"))
        for note in self._old.notes[:_SHOWN]:
            say(f"not compared: {note}")
        if len(self._old.notes) > _SHOWN:
            say(f"(and {len(self._old.notes) - _SHOWN:,} more are not compared; --json lists all)")
        if self._old.again:
            say(f"the earlier publisher sent {counted(self._old.again, 'record')} more than once")
        for each in self._ambiguous[:_SHOWN]:
            say(
                f"{each.record} and {each.same_as} are one record of the earlier publisher: which of the two it sent "
                f"is unknown, and --take-over counts {'both' if each.is_delivered else 'only the latter'} as delivered"
            )
        if len(self._ambiguous) > _SHOWN:
            say(f"(and {len(self._ambiguous) - _SHOWN:,} more like this; --json lists all)")
        say(", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
        if self.twice:
            say(f"{counted(self.twice, 'record')} would count twice at the service: the keys differ")

    def _show_keys(self) -> None:
        """The keys that differ, a line for each part that does."""
        rows: list[list[object]] = [
            [each.record if part is each.key[0] else "", part.field, _value(part.ours), _value(part.theirs)]
            for each in self._twice
            for part in each.key
        ]
        if rows:
            show_table(
                "Keys that differ: each would count twice", ["record", "part of the key", "ours", "theirs"], rows
            )
        if self.twice > len(self._twice):
            say(f"({self.twice - len(self._twice):,} more; --json lists all)")


_KINDS: Final[tuple[Kind, ...]] = ("same", "differs", "other key", "only here", "only there")


def _named(counts: dict[Kind, int]) -> dict[str, Any]:
    return {kind.replace(" ", "_"): count for kind, count in counts.items()}


def _value(value: str | None) -> str:
    return "nothing" if value is None else repr(value)


def _take_over_until(publisher: Publisher, target: str, until: int) -> int:
    if until > publisher.tools.clock():
        raise UsageError(
            f"--delivered-until {iso(until)} is in the future: jobs that have not ended were not delivered",
            hint="Give the end of the last job that was delivered",
        )
    moved = publisher.take_over_until(target, until)
    if session.json:
        json_object({"delivered_until": iso(until), "assumed": moved})
    _say_taken_over(target, moved)
    return DONE


def _say_taken_over(target: str, moved: int) -> None:
    say(
        f"{counted(moved, 'more job')} recorded as delivered by the earlier publisher; the rest is sent when "
        f"`shadow` is removed from [targets.{target}]"
    )
