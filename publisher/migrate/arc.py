"""Move from ARC: read the `[arex/jura]` blocks of arc.conf, and the state in publishing.db.

Names and defaults are those of arc.conf's reference (ARC 6 and 7); there are remarks on settings of earlier releases.
publishing.db has for each accounting target the end time up to which its jobs were published (facts on ARC).
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.benchmark import canonical_name
from formats.calendar import month_bounds, month_of
from formats.registry import FORMATS
from formats.text import LAST_INSTANT
from publisher.errors import UsageError
from publisher.migrate.proposal import Block, BlockFile, Proposal, read_blocks
from publisher.sources.arc.file import VERSION_2
from publisher.sqlite_file import open_read_only
from publisher.text import iso, quoted


class Watermark(msgspec.Struct, frozen=True):
    """The end time up to which (inclusive) a target got its jobs, and ARC's last report to it; epoch seconds."""

    last_end: int
    last_report: int


def read_watermarks(path: Path) -> dict[str, Watermark]:
    """Read the state by the name of the block, such as `arex/jura/sgas:neic`. Raises `UsageError`."""
    hint = "Name the file with --publishing-db; it belongs to the user of A-REX, as a rule root"
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    query = "SELECT TargetID, LastEndTime, LastReport FROM AccountingTargets"
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"{path} is not a publishing.db of ARC: {error}", hint=hint) from error
    watermarks: dict[str, Watermark] = {}
    for name, last_end, last_report in rows:
        if isinstance(last_end, int | float) and last_end > 0:
            if last_end > LAST_INSTANT:
                raise UsageError(f"{path}: LastEndTime of {name}, {last_end}, is not a time", hint=hint)
            is_time = isinstance(last_report, int | float) and 0 <= last_report <= LAST_INSTANT
            watermarks[str(name)] = Watermark(int(last_end), int(last_report) if is_time else 0)
    return watermarks


SOURCE: Final = "arc"
_TARGET_TYPES: Final = {"sgas": "sgas", "apel": "ams"}
"""The `type` of a target, by the kind of block that ARC has for it."""
"""The name that the accounting database gets in the configuration."""

_CONTROL: Final = "/var/spool/arc/jobstatus"
_GRID: Final = "/etc/grid-security"
_CREDENTIALS: Final = (
    ("certificate", "x509_host_cert", f"{_GRID}/hostcert.pem"),
    ("key", "x509_host_key", f"{_GRID}/hostkey.pem"),
    ("ca_directory", "x509_cert_dir", f"{_GRID}/certificates"),
)
_VARIABLE: Final = re.compile(r"\$VAR\{(?:\[([^\[\]]+)\])?([^{}\[\]]+)\}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_URL: Final = re.compile(r"https?://[^\s/]+\S*").fullmatch
_JURA: Final = "arex/jura"
_APEL_FREQUENCY: Final = "86000"
_MOST_RECORDS: Final = 100_000
_OF_ALL: Final = frozenset({"vomsless_vo", "vo_group", "urdelivery_frequency", *(name for _, name, _ in _CREDENTIALS)})
_OF_TARGETS: Final = frozenset({"targeturl", "vofilter", "urbatchsize", "urdelivery_frequency"})
_OF_SGAS: Final = _OF_TARGETS | {"localid_prefix"}
_OF_APEL: Final = _OF_TARGETS | {
    "topic", "project", "gocdb_name", "apel_messages", "benchmark_type", "benchmark_value", "benchmark_description"
}  # fmt: skip
_NEEDLESS: Final = {
    "logfile": "messages go to standard error, or to the journal under systemd",
    "loglevel": "use --verbose or --quiet",
    "legacy_fallback": "job logs of ARC before 6.4 are not read, only the accounting database",
    "archivedir": "the store keeps what was sent; there are no archived records to keep",
    "archivettl": "the store keeps what was sent; there are no archived records to keep",
    "urdelivery_keepfailed": "what was not delivered never expires",
    "use_ssl": "TLS is always used",
    "benchmark_description": "no record has a field for it",
}
_RECORDS: Final = {
    "urs": ("emi-car", None),
    "summaries": ("apel-summary", "0.2"),
    "summaries-v04": ("apel-summary", "0.4"),
}


def from_arc(path: Path, publishing_db: Path | None, site: str = "", release: str = "") -> Proposal:
    """Make the configuration that replaces an arc.conf. `release`: of ARC, such as `6.17`, for its spellings.

    `publishing_db`: its path, if it is not beside the accounting database. Raises `UsageError`.
    """
    return _Arc(read_blocks(path), publishing_db, site, release).proposal


class _Arc:
    def __init__(self, conf: BlockFile, publishing_db: Path | None, site: str, release: str) -> None:
        self._conf = conf
        self._release = _release(release)
        self._jura = conf.block(_JURA)
        self.proposal = Proposal(str(conf.path))
        self._watermarks, self._state = self._read_state(publishing_db)
        self._marks: dict[str, int] = {}
        self.proposal.state_file = self._state
        self._remark_problems()
        self._credentials()
        self._source()
        for name, block in conf.blocks.items():
            kind, _, rest = name.removeprefix(f"{_JURA}/").partition(":")
            if name.startswith(f"{_JURA}/") and kind in _TARGET_TYPES:
                self._target(kind, rest or kind, block)
            elif name.startswith(f"{_JURA}/"):
                self._leave_out(block, f"[{name}]")
        self._benchmark_of_the_past()
        self._site(site)
        self._state_of_others()
        self._common_remarks()

    # --- the file

    def _value(self, block: Block, name: str) -> str | None:
        """A value with `$VAR{...}` replaced; `$EXEC{...}` and `$EVAL{...}` are never executed."""
        value = block.get(name)
        for _ in range(10):
            if value is None or not (match := _VARIABLE.search(value)):
                break
            inner = self._conf.block(match[1] or block.name).get(match[2]) or ""
            value = value[: match.start()] + inner + value[match.end() :]
        if value is not None and re.search(r"\$(VAR|EXEC|EVAL)\{", value):
            self.proposal.remark(
                "choose", f"[{block.name}] {name}", f"its value {value!r} is computed by ARC: set the result here"
            )
            return None
        return value

    def _remark_problems(self) -> None:
        for number, line in self._conf.problems:
            self.proposal.remark("not carried over", f"line {number}", f"is not understood: {line[:80]!r}")
        if _JURA not in self._conf.blocks:
            text = "is missing: this site does not publish with ARC 6 or later"
            old = [name for name in ("grid-manager", "common/jura", "arex/jura/archiving") if name in self._conf.blocks]
            if "grid-manager" in old:
                text += "; [grid-manager] is ARC 5's, whose job logs are not read"
            self.proposal.remark("choose", f"[{_JURA}]", text)
        for option in self._jura.options:
            if option.name in _NEEDLESS:
                self.proposal.remark("differs", f"[{_JURA}] {option.name}", _NEEDLESS[option.name])
            elif option.name not in _OF_ALL:
                self.proposal.remark("not carried over", f"[{_JURA}] {option.name}", "is not known")
        if any(option.quoted for name, block in self._conf.blocks.items() if _JURA in name for option in block.options):
            text = "quotes around values are removed, as in ARC before 6.0; later releases keep them"
            self.proposal.remark("differs", f"[{_JURA}]", text)

    def _leave_out(self, block: Block, where: str) -> None:
        if not block.options:
            self.proposal.remark("not carried over", where, "has no counterpart")
        for option in block.options:
            why = _NEEDLESS.get(option.name, "has no counterpart")
            self.proposal.remark("not carried over", f"{where} {option.name}", why)

    def _credentials(self) -> None:
        for key, name, default in _CREDENTIALS:
            common = self._conf.block("common")
            self.proposal.credentials[key] = self._value(self._jura, name) or self._value(common, name) or default

    # --- the source

    def _control(self) -> str:
        return (self._value(self._conf.block("arex"), "controldir") or _CONTROL).rstrip("/")

    def _database(self) -> Path:
        """The database that this release of ARC writes; without a release, the one that is there."""
        of_arc_6, of_arc_7 = (Path(self._control(), "accounting", name) for name in ("accounting.db", VERSION_2))
        if of_arc_6.exists() and of_arc_7.exists():
            text = f"{of_arc_6} has the jobs of ARC 6, {of_arc_7} those of ARC 7: add a source for the other one"
            self.proposal.remark("choose", "[arex] controldir", text)
        is_7 = of_arc_7.exists() if self._release is None else self._release >= (7,)
        return of_arc_7 if is_7 else of_arc_6

    def _source(self) -> None:
        source: dict[str, Any] = {"type": "arc", "path": str(self._database())}
        self.proposal.sources[SOURCE] = source
        if (score := self._value(self._conf.block("lrms"), "benchmark")) is not None:
            source["benchmark"] = self._benchmark(score.partition(":")[::2], "[lrms] benchmark")
        rules = []
        for name, block in self._conf.blocks.items():
            if name.startswith("queue:") and (score := next(iter(block.all("benchmark")), None)) is not None:
                benchmark = self._benchmark(score.partition(" ")[::2], f"[{name}] benchmark")
                rules += [{**benchmark, "queue": name.partition(":")[2]}] if benchmark else []
        if rules:
            source["benchmarks"] = rules
        if not source.get("benchmark"):
            source.pop("benchmark", None)
        self._vomsless(source)

    def _benchmark(self, written: tuple[str, str] | tuple[str, ...], where: str) -> dict[str, Any] | None:
        kind, score = (part.strip() for part in written)
        try:
            value = float(score)
        except ValueError:
            value = 0.0
        if not kind or not 0 < value < float("inf"):
            self.proposal.remark(
                "choose", where, f"{kind} {score} is not a type and score: set sources.{SOURCE}.benchmark"
            )
            return None
        return {"type": canonical_name(kind) or kind, "value": value}

    def _vomsless(self, source: dict[str, Any]) -> None:
        where = f"[{_JURA}] vomsless_vo"
        if (value := self._value(self._jura, "vomsless_vo")) is not None:
            vo, _, issuer = value.partition("#")
            if self._sends_summaries():
                text = (
                    "ARC puts it into job records and not into summaries, so that with it the summary of the month of "
                    f"the move would count those jobs twice. Add `map = [{{ vo = {quoted(vo.strip())} }}]` to "
                    f"[sources.{SOURCE}] when that month is over"
                )
                self.proposal.remark("choose", where, text)
            else:
                source["map"] = [{"vo": vo.strip()}]
                text = "jobs without a VO get it in VO filters too; ARC puts it into records only"
                self.proposal.remark("differs", where, text)
            if issuer:
                self.proposal.remark("not carried over", where, f"records do not have the issuer {issuer}")
        if self._jura.all("vo_group"):
            text = (
                "records have the groups of the job's own VOMS attributes, no additional ones; with this setting ARC "
                "writes usage records that are not well-formed"
            )
            self.proposal.remark("not carried over", f"[{_JURA}] vo_group", text)

    def _sends_summaries(self) -> bool:
        apel = [block for name, block in self._conf.blocks.items() if name.startswith(f"{_JURA}/apel")]
        return any(self._value(block, "apel_messages") != "urs" for block in apel)

    def _benchmark_of_the_past(self) -> None:
        """Keep HEPSPEC 1.0, which ARC sends for jobs without a benchmark: it is part of the key of a summary."""
        source = self.proposal.sources[SOURCE]
        marks = [
            self._marks[name]
            for name, target in self.proposal.targets.items()
            if name in self._marks and "vo_spelling" in target
        ]
        if not marks or not ("benchmark" in source or "benchmarks" in source):
            return
        until = iso(month_bounds(month_of(max(marks)))[1])
        rule = {"type": "HEPSPEC", "value": 1.0, "until": until}
        source["benchmarks"] = [rule, *source.get("benchmarks", ())]
        text = (
            f"jobs that have none in the accounting database were sent as HEPSPEC 1.0. Up to {until} they still are, "
            "or APEL would count them twice in the month of the move: if ARC is stopped in a later month, set `until` "
            "to its end"
        )
        self.proposal.remark("choose", f"sources.{SOURCE}.benchmarks", text)

    # --- the targets

    def _target(self, kind: str, name: str, block: Block) -> None:
        where = f"[{block.name}]"
        url = self._value(block, "targeturl")
        if url is None or not _URL(url):
            self.proposal.remark("choose", f"{where} targeturl", f"{url!r} is not a URL: the target is left out")
            return
        target: dict[str, Any] = {"type": _TARGET_TYPES[kind], "url": url.rstrip("/")}
        known = _OF_APEL if kind == "apel" else _OF_SGAS
        for option in block.options:
            if option.name in _NEEDLESS:
                self.proposal.remark("differs", f"{where} {option.name}", _NEEDLESS[option.name])
            elif option.name not in known:
                self.proposal.remark("not carried over", f"{where} {option.name}", "is not known")
        if kind == "apel":
            self._apel(target, block)
        elif (prefix := self._value(block, "localid_prefix")) is not None:
            target["local_id_prefix"] = prefix
        if vos := block.all("vofilter"):
            target["vo"] = vos
            target["unknown_vo"] = "skip"
            text = 'jobs without a VO are skipped, as in ARC; `unknown_vo = "hold"` would list them'
            self.proposal.remark("differs", f"{where} vofilter", text)
        self._batch(target, block)
        self._every(target, block, kind)
        free = self.proposal.free_name(name, kind)
        if (mark := self._delivered(target, block)) is not None:
            self._marks[free] = mark.last_end
        self.proposal.targets[free] = target

    def _apel(self, target: dict[str, Any], block: Block) -> None:
        where = f"[{block.name}]"
        for key, default in (("project", "accounting"), ("topic", "gLite-APEL")):
            name = self._value(block, key) or default
            if not _TOPIC(name):
                text = f"{name!r} is a name of the earlier brokers, not of the messaging service; {default} is used"
                self.proposal.remark("choose", f"{where} {key}", text)
                name = default
            target[key] = name
        messages = self._value(block, "apel_messages") or "summaries"
        records, version = _RECORDS.get(messages, _RECORDS["summaries"])
        if messages == "both":
            text = (
                "one service must not get job records and summaries of a site, or it counts neither: summaries are sent"
            )
            self.proposal.remark("choose", f"{where} apel_messages", text)
        elif messages not in _RECORDS:
            text = f"{messages!r} is not known: summaries are sent (ARC sends sync messages only, and loses the jobs)"
            self.proposal.remark("choose", f"{where} apel_messages", text)
        target["records"] = records
        if version is not None:
            target["version"] = version
        self._spellings(target, summaries=version is not None)
        kind, value = self._value(block, "benchmark_type"), self._value(block, "benchmark_value")
        if kind is not None and value is not None and "benchmark" not in self.proposal.sources[SOURCE]:
            benchmark = self._benchmark((kind, value), f"{where} benchmark_type, benchmark_value")
            if benchmark is not None:
                self.proposal.sources[SOURCE]["benchmark"] = benchmark
        elif kind is not None and value is None:
            target["benchmark_type"] = kind

    def _spellings(self, target: dict[str, Any], *, summaries: bool) -> None:
        """The spellings in the keys of APEL, as the history at the service has them (facts on ARC)."""
        if self._release is None:
            text = (
                "SubmitHost and VO groups are spelled as ARC 6.21 and later have them; a history of 6.20 or earlier is "
                "spelled otherwise: import again with --release 6.20. With the wrong one APEL counts the month of the "
                "move twice"
            )
            self.proposal.remark("choose", "ARC's release", text)
        release = self._release or (6, 21)
        if summaries and release < (6, 18):
            text = (
                "does not support HEPscore23: jobs that have it in the accounting database were sent as HEPSPEC 1.0, "
                "in another group than here. If there are any, let ARC publish the month to its end, and set `since` "
                "of the target to the next one"
            )
            self.proposal.remark("choose", f"ARC {'.'.join(map(str, release))}", text)
        target["submit_host"] = "url" if release < (6, 21) else "arc-6.21"
        if summaries:
            target["vo_spelling"] = "arc-6.17" if release < (6, 20) else "arc-6.20" if release < (6, 21) else "arc"
            text = "groups and roles of VOs are spelled as ARC has them, so that no month counts twice"
            self.proposal.remark("differs", "targets: vo_spelling", text)

    def _batch(self, target: dict[str, Any], block: Block) -> None:
        value = self._value(block, "urbatchsize")
        if value is None:
            return
        where = f"[{block.name}] urbatchsize"
        if not value.isascii() or not value.isdigit():
            self.proposal.remark("choose", where, f"{value!r} is not a number; the default is used")
        elif int(value) == 0:
            target["batch_records"] = _MOST_RECORDS
            self.proposal.remark("differs", where, "0 means no limit of records: only `batch_bytes` limits a message")
        else:
            target["batch_records"] = min(int(value), _MOST_RECORDS)

    def _every(self, target: dict[str, Any], block: Block, kind: str) -> None:
        own = self._value(block, "urdelivery_frequency")
        value = own or (_APEL_FREQUENCY if kind == "apel" else self._value(self._jura, "urdelivery_frequency"))
        if value is None:
            return
        if not value.isascii() or not value.isdigit():
            where = f"[{block.name if own else _JURA}] urdelivery_frequency"
            self.proposal.remark("choose", where, f"{value!r} is not a number of seconds: the timer alone decides")
            return
        target["every"] = f"{int(value)}s"
        if own is None and kind == "apel":
            self.proposal.remark("differs", f"[{block.name}] urdelivery_frequency", "`every` is ARC's default")

    # --- the state

    def _read_state(self, path: Path | None) -> tuple[dict[str, Watermark], Path | None]:
        usual = Path(self._control(), "accounting", "publishing.db")
        file = path or usual
        try:
            return read_watermarks(file), file
        except UsageError as error:
            if path is not None:
                raise
            text = f"{error.message}. Without it everything in the accounting database is sent again"
            self.proposal.remark("choose", str(usual), f"{text}: import as root, or name a copy with --publishing-db")
            return {}, None

    def _delivered(self, target: dict[str, Any], block: Block) -> Watermark | None:
        short = block.name.partition(":")[2]
        mark = self._watermarks.get(block.name) or self._watermarks.get(short)
        where = f"[{block.name}]"
        if mark is None:
            if self._state is not None:
                text = (
                    f"{self._state} has no state of it: every job in the accounting database is sent; set `since` "
                    "to begin later"
                )
                self.proposal.remark("choose", where, text)
            return None
        target["delivered_until"] = iso(mark.last_end)
        until, reported = iso(mark.last_end), iso(mark.last_report)
        text = f"jobs that ended up to {until} count as delivered by ARC, which last reported {reported}"
        self.proposal.remark("state", where, text)
        return mark

    def _state_of_others(self) -> None:
        names = {name for name in self._conf.blocks if name.startswith(f"{_JURA}/")}
        names |= {name.partition(":")[2] for name in names}
        for name in sorted(self._watermarks.keys() - names):
            text = "is in publishing.db, but not in arc.conf: a target that was renamed or removed"
            self.proposal.remark("state", name, text)

    # --- the whole

    def _site(self, given: str) -> None:
        apel = [block for name, block in self._conf.blocks.items() if name.startswith(f"{_JURA}/apel:")]
        names = list(dict.fromkeys(name for block in apel if (name := self._value(block, "gocdb_name")) is not None))
        self.proposal.site = given or next(iter(names), "")
        if len(names) > 1 and not given:
            text = f"there are several: {', '.join(names)}. A configuration has one site; give the others their own"
            self.proposal.remark("choose", "gocdb_name", text)
        if not self.proposal.site:
            text = "no target names the site: set site.name, or give --site"
            self.proposal.remark("choose", "gocdb_name", text)

    def _common_remarks(self) -> None:
        remark = self.proposal.remark
        if not self.proposal.targets:
            remark("choose", f"[{_JURA}/...]", "no target is configured: nothing would be sent")
        source = self.proposal.sources[SOURCE]
        if "benchmark" not in source and any(
            FORMATS[target["records"]].needs_benchmark
            for target in self.proposal.targets.values()
            if "records" in target
        ):
            text = (
                "there is no default: jobs that have none in the accounting database are held for APEL until "
                f"sources.{SOURCE}.benchmark is set; ARC sends them as HEPSPEC 1.0; see Switches"
            )
            remark("choose", "benchmark", text)
        if (proxy := self._value(self._conf.block("common"), "http_proxy")) is not None:
            text = f"{proxy} is not used, as ARC's publisher does not use it; set `proxy` of a target that needs one"
            remark("differs", "[common] http_proxy", text)
        if self._watermarks:
            text = (
                "jobs that ended before ARC first published to a target, or turned up late, were never sent by it; "
                "`usage-publisher republish TARGET --since TIME --until TIME --only-missing` sends them"
            )
            remark("state", "ARC's losses", text)


def _release(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None:
        raise UsageError(f"{text!r} is not a release of ARC", hint="It is written like 6.17")
    return tuple(int(number) for number in numbers.groups())
