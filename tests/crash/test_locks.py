"""Two at a time: one sends, the other says so and leaves; a lock is its target's alone, and dies with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from publisher.store.schema import State
from tests.crash.child import ROOT
from tests.crash.conftest import Make
from tests.crash.crash_site import CrashSite
from tests.publisher.cli.program import Done, run_command

HOLDER = """
import sys
from pathlib import Path
from publisher.api import Publisher
with Publisher.from_file(Path(sys.argv[1])) as publisher, publisher.store.lock(sys.argv[2]) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(site: CrashSite, lock: str) -> Iterator[None]:
    """Another process holds a lock of the store."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(site.config), lock],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        yield
        holder.communicate("")


def command(site: CrashSite, *words: str) -> Done:
    """The real command."""
    return run_command(["--config", site.config, *words], ROOT, {**os.environ, "COLUMNS": "200"})


def test_a_second_run_says_that_another_is_at_work_and_leaves_with_0(make: Make) -> None:
    site = make("files")
    site.run("collect")
    with held(site, "collect"):
        for word in ("collect", "run"):
            second = command(site, word)
            assert "another run is collecting" in second.ok().err
    site.run("republish")  # everything waits again, and is sent
    with held(site, "target-spool"):
        second = command(site, "publish")
        assert second.code == 0, second.err
        assert "another run" in second.err + second.out
        denied = command(site, "republish", "spool", "--since", "2026-09", "--until", "2026-12", "--yes")
        assert denied.code == 1
        assert "another run" in denied.err
    command(site, "publish").ok()
    site.assert_delivered()


def test_a_run_beside_one_that_collects_sends_what_is_there_and_is_content(make: Make) -> None:
    """What waits by then is the other's affair."""
    site = make("files")
    site.run("collect")
    with held(site, "target-spool"), held(site, "collect"):
        second = command(site, "run")
    second.ok()
    assert site.ledger().counters == {State.WAITING: len(site.selected())}


def test_a_lock_dies_with_its_process(make: Make) -> None:
    site = make("files")
    site.run("collect")
    assert site.run("publish", 1).code == -signal.SIGKILL
    assert site.run("publish").code == 0
    site.assert_delivered()


def test_a_target_at_work_does_not_block_the_others(make: Make) -> None:
    site = make("files")
    with site.config.open("a") as file:
        file.write('[targets.other]\ntype = "directory"\npath = "other"\nlayout = "files"\nrecords = "ogf-ur"\n')
    site.run("collect")
    with held(site, "target-spool"):
        assert site.run("publish").code == 0
    assert site.arrived() == {}
    site.spool = site.folder / "other"
    assert set(site.arrived()) == set(site.selected())
