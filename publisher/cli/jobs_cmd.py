"""jobs: runs, and where each was delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli import completion, options
from publisher.cli.options import All, limit_of, list_json, say_if_cut
from publisher.cli.output import data, json_object, say
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import UsageError
from publisher.reason import sentence
from publisher.text import counted, iso, safe, unknown_name

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.status.jobs import FoundJobs, KnownRun
    from publisher.store.schema import State

_SHOWN: Final = 100


def _pattern(name: str, text: str) -> Any:
    return typer.Option(name, metavar="PATTERN", help=f"{text}.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("jobs")(jobs)


def jobs(
    job: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Record id, global id, or local id; that of an array selects all its tasks."),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    user: Annotated[str | None, _pattern("--user", "Only of this local user or distinguished name")] = None,
    group: Annotated[str | None, _pattern("--group", "Only of this group")] = None,
    vo: Annotated[str | None, _pattern("--vo", "Only of this VO")] = None,
    project: Annotated[str | None, _pattern("--project", "Only of this project")] = None,
    queue: Annotated[str | None, _pattern("--queue", "Only in this queue or partition")] = None,
    host: Annotated[str | None, _pattern("--host", "Only on this host")] = None,
    status: Annotated[str | None, _pattern("--status", "Only with this status: completed, failed, ...")] = None,
    task: Annotated[str | None, _pattern("--task", "Only these array tasks, such as 3 or 1-10:2")] = None,
    reservation: Annotated[str | None, _pattern("--reservation", "Only in this advance reservation")] = None,
    ending: Annotated[str | None, _pattern("--ending", "Only with this ending: time-limit, memory-limit, ...")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Only from this source of the configuration.",
            autocompletion=completion.sources,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Only with a delivery to this target.",
            autocompletion=completion.targets,
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only with a delivery in this state: waiting, held, rejected, accepted, ...",
            autocompletion=completion.states,
        ),
    ] = None,
    held: Annotated[bool, typer.Option("--held", help="The same as --state held.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The newest N. Default: 100.")
    ] = None,
    show_all: All = False,
) -> None:
    """Show one job in full, or list the jobs that ended last, and where each was delivered.

    A PATTERN may contain * and ?, as in the shell.
    """
    from publisher.sources.base import Window  # noqa: PLC0415
    from publisher.status.jobs import JobFilter  # noqa: PLC0415
    from publisher.store.schema import State  # noqa: PLC0415

    most = limit_of(limit, _SHOWN, show_all=show_all)
    with session.publisher() as publisher:
        begin, end = options.window_bounds(since, until)
        patterns = {
            "user": user, "group": group, "vo": vo, "project": project, "queue": queue, "host": host, "status": status,
            "task": task, "reservation": reservation, "ending": ending,
        }  # fmt: skip
        given = {name: pattern for name, pattern in patterns.items() if pattern is not None}
        if held:
            if state is not None:
                raise UsageError("--held cannot be combined with --state")
            state = State.HELD.word
        chosen = JobFilter(given, source, target, _known_state(publisher.config, source, target, state))
        window = Window(begin, end)
        if job is not None:
            _in_full(
                publisher.job_found(job, window, chosen, most),
                job,
                selected=(window, chosen) != (Window(), JobFilter()),
            )
            return
        matches = publisher.jobs_found(window, chosen, most)
    if session.json:
        json_object(list_json([run_json(known) for known in matches.jobs], matches.total))
    elif matches.jobs:
        _list(matches.jobs)
        say_if_cut(len(matches.jobs), matches.total, "newest")
    else:
        say(publisher.missing or "no job matches")


def _known_state(config: Config, source: str | None, target: str | None, state: str | None) -> State | None:
    """The state of this name. Raises `UsageError` for an unknown source, target, or state."""
    from publisher.store.schema import State  # noqa: PLC0415

    words = {known.word: known for known in State}
    state = None if state is None else state.strip().lower().replace(" ", "_").replace("-", "_")
    if state is not None and state not in words:
        raise UsageError(
            unknown_name("state", state, words),
            hint="Confirmed jobs are accepted ones; `status` counts them separately" if state == "confirmed" else "",
        )
    if source is not None and source not in config.sources:
        raise UsageError(unknown_name("source", source, config.sources))
    if target is not None and target not in config.targets:
        raise UsageError(unknown_name("target", target, config.targets))
    return None if state is None else words[state]


def _in_full(found: FoundJobs, name: str, *, selected: bool) -> None:
    """Show the runs of an id. Raises `UsageError` if there is none."""
    if not found.jobs:
        text = f"job {name} does not match these filters" if selected else f"job {name} not found"
        raise UsageError(text, hint="Give a record id, a local id, or a global id")
    if session.json:
        json_object(list_json([run_json(known) for known in found.jobs], found.total))
        return
    for known in found.jobs:
        show_run(known)
    say_if_cut(len(found.jobs), found.total, "first")


def show_run(known: KnownRun) -> None:
    """Show one run in full: every fact as read, then where it was delivered."""
    from publisher.status.jobs import fact_rows  # noqa: PLC0415

    data(f"Job {safe(known.run.record_id)}  (source {safe(known.run.source)}, stored {iso(known.run.stored_at)})")
    for name, lines in fact_rows(known.run.job):
        for number, line in enumerate(lines):
            data(f"  {'' if number else safe(name):<22} {safe(line)}")
    if not known.whereabouts and not known.not_selected:
        data("  not for any target")
    for place in known.whereabouts:
        line = f"  -> {safe(place.target)}: {place.state.word} since {iso(place.changed_at)}"
        if place.batch is not None:
            line += f", batch {place.batch.uid} of {counted(place.batch.records, 'record')}"
            receipt = place.batch.receipt.get(known.run.record_id)
            line += f", receipt {safe(receipt)}" if receipt else ""
        line += f", confirmed {iso(place.confirmed_at)}" if place.confirmed_at is not None else ""
        why = sentence(place.reason)
        data(line + (f"\n     {safe(why)}" if why else ""))
        if place.target in known.not_selected:
            data(f"     no longer selected: {safe(known.not_selected[place.target])}")
    for target in sorted(known.not_selected.keys() - {place.target for place in known.whereabouts}):
        data(f"  -> {safe(target)}: not selected: {safe(known.not_selected[target])}")


def run_json(known: KnownRun) -> dict[str, Any]:
    """A run in full, as `--json` gives it."""
    from publisher.status.jobs import facts  # noqa: PLC0415

    return {
        "record_id": known.run.record_id,
        "source": known.run.source,
        "stored_at": iso(known.run.stored_at),
        "facts": facts(known.run.job),
        "targets": {
            place.target: {
                "state": place.state.word,
                "since": iso(place.changed_at),
                "confirmed": iso(place.confirmed_at),
                "reason": None if place.reason is None else sentence(place.reason),
                "reason_code": None if place.reason is None else place.reason.code,
                "assumed": place.assumed,
                "batch": place.batch.uid if place.batch else None,
                "receipt": place.batch.receipt.get(known.run.record_id) if place.batch else None,
                "answer": place.batch.answer if place.batch else None,
            }
            for place in known.whereabouts
        },
        "not_selected": dict(known.not_selected),
    }


def _list(chosen: list[KnownRun]) -> None:
    rows: list[list[object]] = []
    for known in chosen:
        job = known.run.job
        places = ", ".join(f"{place.target}: {place.state.word}" for place in known.whereabouts)
        user = job.user_dn or job.local_user
        status = f"{job.status} (slave)" if job.slave else job.status
        rows.append([job.local_id or job.global_id, iso(job.end), status, job.queue, job.vo, user, places])
    show_table("", ["job", "ended", "status", "queue", "vo", "user", "targets"], rows)
