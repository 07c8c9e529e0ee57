"""shadow: nothing is sent; what the other sent is compared record by record; taking over neither loses nor repeats."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE, FILES, SOURCE, SUMMARIES, Inside

SHADOW = BASE + SOURCE + FILES + "shadow = true\n" + SUMMARIES + "shadow = true\n"


@pytest.fixture(scope="session")
def shadowed_site(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """A collected site whose targets are shadows, with what another publisher sent in the folder `old`."""
    site = Inside(tmp_path_factory.mktemp("shadowed"))
    load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
    site("collect").ok()
    site("render", "ogf-ur", "--target", "files", "--output", "old").ok()
    site("render", "apel-summary", "--target", "summaries", "--output", "old-summaries").ok()
    site.configure(SHADOW)
    return site


@pytest.fixture
def shadowed(shadowed_site: Inside, tmp_path: Path) -> Inside:
    return shadowed_site.copy(tmp_path / "site")


def one_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_nothing_is_sent_and_nothing_changes(shadowed: Inside) -> None:
    before = shadowed.rows("SELECT target_id, run_id, state, reason FROM deliveries ORDER BY 1, 2")
    done = shadowed("run", "--json").ok()
    rehearsed = done.object["targets"]["files"]["rehearsed"]
    assert rehearsed["records"] == done.object["targets"]["files"]["waiting"] > 0
    assert done.object["targets"]["files"]["batches"] == 0
    assert not (shadowed.folder / "files").exists()
    assert not (shadowed.folder / "summaries").exists()
    assert shadowed.rows("SELECT target_id, run_id, state, reason FROM deliveries ORDER BY 1, 2") == before
    status = shadowed("status", "--json").ok().object["targets"]["files"]
    assert (status["shadow"], status["accepted"]) == (True, 0)
    assert "a shadow: nothing is sent" in shadowed("status").ok().out


def test_republish_to_a_shadow_is_refused(shadowed: Inside) -> None:
    done = shadowed("republish", "files", "--since", "2026-01-01", "--until", "2027-01-01", "--yes")
    assert done.code == 2
    assert "is a shadow" in done.err


def test_what_waits_is_judged(shadowed: Inside) -> None:
    found = shadowed("shadow", "files", "--json").ok().object
    assert found["records"] > 0
    assert found["broken_rules"] == []


def test_the_same_on_both_sides(shadowed: Inside) -> None:
    found = shadowed("shadow", "files", "--against", "old", "--json").ok().object
    assert found["same"] == found["other"]["records"] > 0
    assert (found["differs"], found["only_here"], found["only_there"]) == (0, 0, 0)
    groups = shadowed("shadow", "summaries", "--against", "old-summaries", "--json").ok().object
    assert groups["same"] == groups["other"]["records"] > 0
    assert (groups["differs"], groups["only_here"], groups["only_there"]) == (0, 0, 0)


def test_a_difference_is_reported_with_its_reason_or_as_one_to_look_into(shadowed: Inside) -> None:
    file = one_file(shadowed.folder / "old")
    text = file.read_text()
    walls = re.findall(r"<WallDuration>PT(\d+)S", text)
    text = text.replace(f"<WallDuration>PT{walls[0]}S", f"<WallDuration>PT{int(walls[0]) + 1}S", 1)
    text = text.replace(f"<WallDuration>PT{walls[1]}S", f"<WallDuration>PT{walls[1]}.000000S", 1)
    file.write_text(re.sub(r"<Host[^>]*>[^<]*</Host>", "", text))
    done = shadowed("shadow", "files", "--against", "old", "--json")
    assert done.code == 3
    fields = done.object["fields"]
    assert (fields["WallDuration"]["records"], fields["WallDuration"]["reason"]) == (1, "")
    assert all("ARC" in fields[name]["reason"] for name in fields if name.startswith("Host"))
    assert "not explained" in shadowed("shadow", "files", "--against", "old").out


def test_what_one_side_has_alone(shadowed: Inside) -> None:
    file = one_file(shadowed.folder / "old")
    records = re.findall(r"<JobUsageRecord>.*?</JobUsageRecord>", file.read_text(), re.DOTALL)
    stranger = re.sub(r"(recordId=\"|<GlobalJobId>|<LocalJobId>)[^\"<]*", r"\1stranger", records[0])
    file.write_text(file.read_text().replace(records[0], stranger, 1))
    done = shadowed("shadow", "files", "--against", "old", "--json")
    assert done.code == 3
    assert (done.object["only_here"], done.object["only_there"]) == (1, 1)
    alone = {each["kind"]: each["reason"] for each in done.object["records"]}
    assert alone == {"only here": "the earlier publisher did not send it", "only there": "no source here has it"}


def test_ids_of_its_own_do_not_hide_the_same_job(shadowed: Inside) -> None:
    file = one_file(shadowed.folder / "old")
    file.write_text(re.sub(r"recordId=\"[^\"]*", lambda found: f"{found[0]}-other", file.read_text()))
    found = shadowed("shadow", "files", "--against", "old", "--json").object
    assert (found["only_here"], found["only_there"]) == (0, 0)
    assert "RecordIdentity@recordId" in found["fields"]


def test_a_key_that_is_spelled_otherwise_is_reported(shadowed: Inside) -> None:
    shadowed.configure(SHADOW.replace("EXAMPLE-SITE", "OTHER-SITE"))
    out = shadowed("shadow", "summaries", "--against", "old-summaries").out
    assert "would count twice" in out
    assert re.search(r"Site +│ .OTHER-SITE. +│ .EXAMPLE-SITE.", out)


def test_what_has_not_ended_was_not_delivered(shadowed: Inside) -> None:
    done = shadowed("shadow", "files", "--take-over", "--delivered-until", "2100-01-01")
    assert done.code == 2
    assert "is in the future" in done.err
    assert shadowed("status", "--json").object["targets"]["files"]["assumed"] == 0


def test_taking_over_by_messages_sends_what_the_other_lost(shadowed: Inside) -> None:
    file = one_file(shadowed.folder / "old")
    records = re.findall(r"<JobUsageRecord>.*?</JobUsageRecord>\s*", file.read_text(), re.DOTALL)
    lost = re.search(r"recordId=\"([^\"]*)", records[0])
    assert lost is not None
    file.write_text(file.read_text().replace(records[0], "", 1))
    done = shadowed("shadow", "files", "--against", "old", "--take-over")
    assert f"{len(records) - 1} more jobs recorded as delivered by the earlier publisher" in done.err
    assert shadowed("status", "--json").object["targets"]["files"]["assumed"] == len(records) - 1
    assert "take over" in shadowed("store", "audit").ok().out
    shadowed.configure(SHADOW.replace("shadow = true", "", 1))
    shadowed("publish", "files")
    sent = "".join(path.read_text() for path in (shadowed.folder / "files").iterdir())
    assert re.findall(r"recordId=\"([^\"]*)", sent) == [lost[1]]


def test_taking_over_by_time(shadowed: Inside) -> None:
    shadowed("shadow", "summaries", "--take-over", "--delivered-until", "2026-11-01").ok()
    ends = shadowed.rows(
        "SELECT state, min(end_time), max(end_time) FROM deliveries JOIN targets ON targets.id = target_id "
        "WHERE name = 'summaries' GROUP BY state ORDER BY state"
    )
    limit = 1_793_491_200
    by_state = {state: (first, last) for state, first, last in ends}
    assert by_state[3][1] <= limit < by_state[1][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch",), "unknown target"),
        (("files", "--against", "nosuch"), "nosuch does not exist"),
        (("files", "--against", "old-summaries"), "no record of ogf-ur"),
        (("files", "--take-over"), "--against"),
        (("files", "--delivered-until", "2026-11-01"), "--take-over"),
        (("files", "--month", "2026-11", "--since", "2026-11-01"), "cannot be combined"),
        (("files", "--month", "2026-11"), "need --against"),
        (("files", "--until", "2026-11-01"), "need --against"),
    ],
)
def test_what_makes_no_sense(shadowed: Inside, words: tuple[str, ...], said: str) -> None:
    done = shadowed("shadow", *words)
    assert done.code == 2
    assert said in done.err


def test_where_nothing_was_collected(shadowed: Inside) -> None:
    (shadowed.folder / "store.db").unlink()
    done = shadowed("shadow", "files", "--against", "old")
    assert done.code == 2
    assert "nothing was collected yet" in done.err
    assert not (shadowed.folder / "store.db").exists()


def test_only_a_shadow_is_put_in_the_place_of_another(shadowed: Inside) -> None:
    shadowed.configure(SHADOW.replace("shadow = true", ""))
    done = shadowed("shadow", "files", "--against", "old", "--take-over")
    assert done.code == 2
    assert "is not a shadow" in done.err


def test_an_outgoing_queue_is_read_as_well(shadowed: Inside) -> None:
    queue = shadowed.folder / "outgoing" / "5ba24c88"
    queue.mkdir(parents=True)
    shutil.copy(one_file(shadowed.folder / "old"), queue / "5ba24c8f0f129d")
    (queue / "5ba24c8f0f129d.lck").write_text("x")
    found = shadowed("shadow", "files", "--against", "outgoing", "--json").ok().object
    assert found["same"] == found["other"]["records"] > 0
    assert found["other"]["notes"] == []


def test_the_first_run_after_a_shadow_is_due_at_once(shadowed: Inside) -> None:
    every = 'every = "1d"\n'
    shadowed.configure(SHADOW.replace("shadow = true\n", f"shadow = true\n{every}"))
    shadowed("run").ok()
    assert shadowed("run", "--json").ok().object["targets"]["files"]["rehearsed"] is None, "it is paced as well"
    shadowed.configure(SHADOW.replace("shadow = true\n", every))
    shadowed("run")
    assert (shadowed.folder / "files").exists()


CONDOR = """
[sources.condor]
type = "htcondor"
path = "condor.log"
benchmark = { type = "HEPscore23", value = 14.2 }
complete_since = "2026-09-01"

[targets.apel]
type = "directory"
path = "sent"
layout = "files"
records = "apel-job"
shadow = true
"""


@pytest.mark.parametrize("first", ["a", "b"])
def test_jobs_of_two_schedds_with_one_number_and_end_are_not_mistaken(tmp_path: Path, first: str) -> None:
    """Our local id has no schedd, that of the APEL client has: only the job of schedd `a` was delivered."""
    site = Inside(tmp_path)
    ids = [f"{schedd}.example.org#2376.0#1790816340" for schedd in (first, "a" if first == "b" else "b")]
    lines = [f"{job}|alice|3600|100|5|1790816400|1790820000|1000|2000|1|1.0|\n" for job in ids]
    (tmp_path / "condor.log").write_text("".join(lines))
    (tmp_path / "old.tsv").write_text(
        "Site\tLocalJobId\tEndTime\nEXAMPLE-SITE\ta.example.org#2376.0#1790816340\t2026-10-01 02:00:00\n"
    )
    site.configure(BASE + CONDOR)
    site("collect").ok()
    found = site("shadow", "apel", "--against", "old.tsv", "--json").object
    assert (found["only_here"], found["only_there"]) == (1, 0)
    (tmp_path / "counts.tsv").write_text(
        "Site\tSubmitHost\tNumberOfJobs\tMonth\tYear\nEXAMPLE-SITE\tNone\t1\t10\t2026\n"
    )
    site("shadow", "apel", "--against", "old.tsv", "--against", "counts.tsv", "--take-over")
    query = "SELECT record_id FROM deliveries JOIN runs ON run_id = runs.id WHERE reason = 'assumed'"
    assert site.rows(query) == [("ur-htcondor/a.example.org/2376.0/1790816400",)]
