"""The measurements: `python -m tests.bench [--quick | --full] [--json FILE] [NAME...]`; `--list` shows the names, and
`--csv FILE` keeps the rows in a table, and
`--plot FILE.svg RESULTS.json...` draws time and memory against size from what `--json` wrote, `--pairs` each row beside
its baseline.

A NAME chooses the rows whose name contains it. Every row and its baseline run one after the other, each in a separate
process, on inputs that are always the same (kept in `.bench/`). What the columns mean is in
docs/internals/performance.md.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import (
    arc_own,
    delivering,
    distributions,
    floor,
    hour,
    kept_rows,
    paging,
    parsing,
    plot,
    rendering,
    reporting,
    sharing,
    sizing,
    stages,
    starting,
    storing,
    viewing,
)
from tests.bench.measure import Measured
from tests.bench.rows import ROWS, BenchRow, Measurement, Scale

PACKAGES = ("formats", "publisher")
MODULES = (
    parsing,
    storing,
    rendering,
    delivering,
    arc_own,
    hour,
    distributions,
    sharing,
    sizing,
    stages,
    reporting,
    viewing,
    paging,
    floor,
    starting,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON where asked. 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument("--quick", dest="scale", action="store_const", const="quick", help="small inputs")
    scales.add_argument("--full", dest="scale", action="store_const", const="full", help="up to three million jobs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="replace these rows of this table, or add them")
    parser.add_argument("--inputs", type=Path, default=Path(".bench"), help="where inputs are kept")
    parser.add_argument("--list", action="store_true", help="list the rows and leave")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the results in the files that are named instead"
    )
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="the same, rows beside their baselines")
    options = parser.parse_args(arguments)
    for file, draw in ((options.plot, plot.draw), (options.pairs, plot.draw_pairs)):
        if file is not None:
            draw([Path(name) for name in options.names], file)
            return 0
    chosen = [row for row in ROWS if not options.names or any(name in row.name for name in options.names)]
    if not chosen:
        parser.error(f"no row is named so; there are: {', '.join(row.name for row in ROWS)}")
    if options.list:
        width = max(len(row.name) for row in chosen) + 2
        for row in chosen:
            print(f"{row.name:<{width}}{row.description}")
        return 0
    for package in PACKAGES:  # as an installation: otherwise each process may compile what changed
        compileall.compile_dir(package, quiet=1)
    scale: Scale = options.scale or "default"
    results: list[dict[str, Any]] = []
    print_heading()
    for row in chosen:
        if (found := measure(row, scale, options.inputs)) is None:
            continue
        results.append(found)
        print("| " + " | ".join(cells(found)) + " |", flush=True)
        if options.json is not None:
            far = list(floor.distances(results))
            report = {"machine": machine(), "scale": scale, "rows": results, "distances": far}
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        if options.csv is not None:
            kept_rows.keep(found, options.csv)
    for result in results:
        if result.get("note"):
            print(f"\n{result['row']}: {result['note']}.")
        print_figures(result)
    for distance in floor.distances(results):
        print(f"\n{distance}.")
    return int(any("error" in result for result in results))


def machine() -> dict[str, Any]:
    """What was measured on."""
    return {
        "python": platform.python_version(),
        "processor": processor(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


def processor() -> str:
    """What the system calls its processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def measure(row: BenchRow, scale: Scale, inputs: Path) -> dict[str, Any] | None:
    """A row and its baseline, measured; None where the scale has no such row, or it cannot be measured here."""
    size = row.sizes.at(scale)
    if size is None:
        return None
    if why := row.unless(inputs):
        print(f"{row.name} is left out: {why}", file=sys.stderr)
        return None
    result: dict[str, Any] = {"row": row.name, "unit": row.unit, "description": row.description}
    try:
        if row.baseline is not None:
            beside = in_child(row.baseline, size, inputs, row.variant)
            result["baseline"] = {"name": row.baseline_name, **asdict(beside), "per_s": beside.per_s}
        measured = in_child(row.measurement, size, inputs, row.variant)
    except RuntimeError as error:
        return result | {"error": str(error)}
    result |= {**asdict(measured), "per_s": measured.per_s}
    if row.baseline is not None:
        result["ratio"] = measured.per_s / beside.per_s
        result["cpu_ratio"] = measured.per_cpu_s / beside.per_cpu_s
    return result


def in_child(measurement: Measurement, size: int, inputs: Path, variant: str = "") -> Measured:
    """Measure in a separate process. Raises `RuntimeError` if it fails."""
    module = sys.modules[measurement.__module__].__spec__
    name = module.name if module is not None else measurement.__module__
    command = [sys.executable, "-m", "tests.bench.child", name, measurement.__name__, str(inputs), str(size), variant]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def print_heading() -> None:
    """The head of the table, as Markdown; rows follow as they are measured."""
    print("| " + " | ".join(kept_rows.HEADINGS) + " |")
    print("|" + "|".join(("---", *["---:"] * 5, "---", *["---:"] * 3)) + "|", flush=True)


def print_figures(result: dict[str, Any]) -> None:
    """What was measured besides, a line each: the row, what it is, value and unit; and that of its baseline."""
    beside = result.get("baseline", {})
    for number_of, (figure, value) in enumerate(result.get("figures", {}).items()):
        name, _, unit = figure.rpartition(" ")
        theirs = beside.get("figures", {}).get(figure)
        also = "" if theirs is None else f" ({beside['name']}: {number(theirs)})"
        print(f"{'' if number_of else chr(10)}{result['row']}: {name} {number(value)} {unit}{also}")


def cells(result: dict[str, Any]) -> list[str]:
    """The cells of a row."""
    if "error" in result:
        return [result["row"], "", "", "", "", "", f"failed: {result['error']}", "", "", ""]
    beside = result.get("baseline")
    return [
        result["row"],
        f"{result['records']:,}".replace(",", " "),
        number(result["per_s"]),
        f"{result['cpu_s']:.2f}",
        f"{result['wall_s']:.2f}",
        f"{result['peak_mib']:.0f}",
        beside["name"] if beside else "",
        number(beside["per_s"]) if beside else "",
        f"{result['ratio']:.2f}" if beside else "",
        f"{result['cpu_ratio']:.2f}" if beside else "",
    ]


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
