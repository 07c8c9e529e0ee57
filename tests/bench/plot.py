"""Time and memory against size, drawn from the results of several runs: a line for each row that has several sizes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

Line = dict[int, dict[str, float]]
"""By records: what a row had."""
_PANELS = (
    ("CPU time a record", "microseconds", lambda found: 1e6 * found["cpu_s"] / found["records"]),
    ("Peak memory", "MiB", lambda found: found["peak_mib"]),
)


def draw(results: Sequence[Path], file: Path) -> None:
    """Draw them into a file, in the form that its name says. Raises `SystemExit` where there is nothing to see."""
    lines = lines_of(results)
    if not lines:
        raise SystemExit(
            "no row has results of several sizes: name files that --json wrote with --quick, without, --full"
        )
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(_PANELS), figsize=(14, 6), layout="constrained")
    for axes, (title, unit, value) in zip(panels, _PANELS, strict=True):
        for number, (name, line) in enumerate(sorted(lines.items())):
            sizes = sorted(line)
            style = ("-", "--", ":", "-.")[number // 10 % 4]
            axes.plot(sizes, [value(line[size]) for size in sizes], style, marker="o", markersize=4, label=name)
        axes.set(title=title, xlabel="records", ylabel=unit, xscale="log", ylim=(0, 1.05 * axes.get_ylim()[1]))
        axes.grid(visible=True, alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    figure.savefig(file)
    plt.close(figure)


def lines_of(results: Sequence[Path]) -> dict[str, Line]:
    """The rows that were measured with more than one size; of the same size, the last counts."""
    lines: defaultdict[str, Line] = defaultdict(dict)
    for path in results:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if "error" not in row:
                lines[row["row"]][row["records"]] = row
    return {name: line for name, line in lines.items() if len(line) > 1}
