"""Pictures from results: time and memory against size, a line for each row that has several sizes; and rows beside
their baselines, a pair of bars for each.
"""

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
_PAIRS = (("CPU time", "cpu_s"), ("Wall time", "wall_s"))


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


def draw_pairs(results: Sequence[Path], file: Path) -> None:
    """Draw each row that has a baseline, and its baseline, in seconds. Raises `SystemExit` where there is none."""
    rows = [row for path in results for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if "ratio" in row]
    if not rows:
        raise SystemExit("no row has a baseline")
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(_PAIRS), figsize=(12, 1 + 0.7 * len(rows)), layout="constrained", sharey=True)
    for axes, (title, measured) in zip(panels, _PAIRS, strict=True):
        for number, row in enumerate(reversed(rows)):
            pair = ((0.2, "C0", "", row), (-0.2, "C7", row["baseline"]["name"], row["baseline"]))
            for offset, colour, name, found in pair:
                bars = axes.barh(number + offset, found[measured], height=0.36, color=colour)
                axes.bar_label(bars, [f"{found[measured]:.3g} {name}"], padding=3, fontsize="small")
        axes.set(title=title, xlabel="seconds", yticks=range(len(rows)), yticklabels=[row["row"] for row in rows[::-1]])
        axes.margins(x=0.35)
        axes.grid(visible=True, axis="x", alpha=0.3)
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
