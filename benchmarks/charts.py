"""The charts of docs/speed.md, from the records in results/bench; `make docs` runs it.

    PYTHONPATH=src python benchmarks/charts.py results/bench docs/images

A record of `letsam bench` becomes bench-NAME.png, bars; one of benchmarks/sweep.py becomes sweep-NAME.png, lines.
"""

import argparse
import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from letsam.bench.chart import draw
from letsam.experiments.record import read_json
from letsam.files import write

COLOURS = {"erm": "#9aa3ad", "sam": "#3b7dd8", "auto-sam:every=10": "#e07b39", "lets-sam": "#3a9d6e"}
STYLES = {"eager": "-", "captured": "--"}
LABELS = {"parameters": "parameters", "tensors": "tensors", "batch": "images a batch"}
Line = list[tuple[float, float]]


def lines(sweep: dict[str, Any]) -> dict[tuple[str, str], Line]:
    """Of two bare passes and of each method in each mode: the step's time beside the plain loop's, at every point."""
    found: dict[tuple[str, str], Line] = {}
    for point in sweep["points"]:
        rows = [row for row in point["record"]["rows"] if not row["error"]]
        plain = next((row["ms"] for row in rows if row["kind"] == "plain"), None)
        for row in rows if plain else ():
            if row["kind"] in ("two passes", "letsam"):
                found.setdefault((row["name"], row["mode"]), []).append((point[sweep["axis"]], row["ms"] / plain))
    return {name: sorted(line) for name, line in found.items()}


def draw_sweep(sweep: dict[str, Any], path: Path) -> None:
    """Eager methods in full lines, captured ones in broken lines, over a logarithmic axis."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for (name, mode), line in lines(sweep).items():
        bare = name not in COLOURS
        colour, style = COLOURS.get(name, "black"), ":" if bare else STYLES[mode]
        label = f"{name}, {'torch' if bare else mode}"
        axes.plot(*zip(*line, strict=True), style, color=colour, marker="o", markersize=4, label=label)
    axes.set_xscale("log")
    values = [point[sweep["axis"]] for point in sweep["points"]]
    axes.set_xticks(values, [f"{x / 1e6:.3g} M" if x >= 1e6 else f"{x:,}" for x in values])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(LABELS[sweep["axis"]])
    axes.set_ylabel("step time beside the plain torch loop")
    axes.set_title(subtitle(sweep), fontsize=9, loc="left")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write(path, image.getvalue())


def subtitle(sweep: dict[str, Any]) -> str:
    """What was varied, on what."""
    machine = sweep["points"][0]["record"]["environment"]
    tiny = ", tiny points" if sweep["tiny"] else ""
    return f"{sweep['sweep']}{tiny}, {machine['device']}, torch {machine['torch']}"


def main() -> None:
    """Draw every record of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("images", type=Path)
    args = parser.parse_args()
    args.images.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.records.glob("*.json")):
        record = read_json(path)
        if record["kind"] == "letsam bench":
            draw(record, args.images / f"bench-{path.stem}.png")
        elif record["kind"] == "letsam sweep" and record["points"]:
            draw_sweep(record, args.images / f"{path.stem}.png")


if __name__ == "__main__":
    main()
