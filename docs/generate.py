"""Writes what the registry and the records know into the documentation, between `<!-- generated: … -->` and
`<!-- end -->`.

python docs/generate.py            rewrite the blocks
python docs/generate.py --check    change nothing; exit 1 if a block is out of date
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

import letsam
from letsam.bench.record import title
from letsam.bench.rows import milliseconds
from letsam.experiments import tables
from letsam.experiments.drawing import drawings
from letsam.experiments.found import find
from letsam.experiments.price_command import PRICE
from letsam.experiments.recipe import REPRODUCTION, Figure, list_recipes, load_recipe
from letsam.experiments.records import records
from letsam.experiments.search import bill_rows
from letsam.experiments.study import STUDY
from letsam.experiments.study_tables import signal_rows, task_rows, verdict_rows
from letsam.methods import PRESETS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "methods"
RESULTS = ROOT / "results"
RECIPES = ROOT / "recipes"
SHOWN = [
    "erm",
    "sam:rho=0.05",
    "sam:rho=0.1",
    "sam:rho=0.2",
    "sam:rho=0.5",
    "asam",
    "lets-sam",
    "auto-sam",
    "auto-asam",
]
ON_GPU = ("resnet18", "wrn28-10", "vit-s", "decoder-125m")
ON_CPU = ("cpu-resnet18", "cpu-mlp-2000", "cpu-mlp-2000-128")
FAMILIES = {"lets": "the radius of m learned as in the paper", "auto": "the radius of m learned, nothing to tune"}
COLUMNS = ("method", "what it does", "passes a step", "extra memory (parameter copies)", "default ρ", "paper")


def page_of(method: str) -> str:
    """The name of the page that describes a method: its own, or that of its family."""
    family = method.partition("-")[0]
    return family if family in FAMILIES else method


def method_table(links: str) -> str:
    """Every method a row, `lets-<m>` and `auto-<m>` one row each; `links` leads to the pages."""
    rows = [list(COLUMNS)]
    for name, preset in PRESETS.items():
        method = letsam.describe(name)
        rho = "–" if preset.rho is None else f"{preset.rho:g}"
        cost = f"{method.passes:g}", f"{method.memory}"
        rows.append([f"[`{name}`]({links}{name}.md)", method.summary, *cost, rho, method.paper])
    rows += [_family_row(family, links) for family in FAMILIES]
    return table(rows)


def _family_row(family: str, links: str) -> list[str]:
    members = [letsam.describe(name) for name in letsam.list_methods() if page_of(name) == family]
    first = members[0]
    share = first.defaults["initial"][0] / letsam.describe(first.name.removeprefix(f"{family}-")).defaults["rho"][0]
    rho = {"1": "", "0.1": "a tenth of "}.get(f"{share:g}", f"{share:g} × ") + "that of m, at first"
    cost = _span([m.passes for m in members]), _span([m.memory for m in members])
    return [f"[`{family}-<m>`]({links}{family}.md)", FAMILIES[family], *cost, rho, first.paper.rpartition("; ")[2]]


def _span(values: list[float]) -> str:
    return " to ".join(f"{x:g}" for x in sorted({min(values), max(values)}))


def description(page: str) -> str:
    """What `letsam describe` prints, as a code block; a family shows its member on SAM."""
    name = f"{page}-sam" if page in FAMILIES else page
    return f"```text\n$ letsam describe {name}\n{letsam.describe(name)}\n```"


def table(rows: list[list[str]]) -> str:
    """Markdown; the first row is the head."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def digits(names: list[str] | None = None) -> str:
    """Test accuracy and learned radius of every method, one column a noise level, from results/digits."""
    levels: dict[float, dict[str, dict]] = {}
    for path in sorted(RESULTS.glob("digits/*/result.json")):
        result = json.loads(path.read_text())
        levels.setdefault(result["noise"], {}).update({m["method"]: m for m in result["methods"]})
    every = [m for level in levels.values() for m in level]
    names = [m for m in dict.fromkeys(every) if names is None or m in names]
    rows = [
        ["method", "passes a step", *(f"{100 * x:g} % wrong labels" if x else "clean labels" for x in sorted(levels))]
    ]
    for name in names:
        cells = [level.get(name) for _, level in sorted(levels.items())]
        passes = next(f"{cell['passes_per_step']:.2g}" for cell in cells if cell)
        rows.append([f"`{name}`", passes, *("" if cell is None else accuracy(cell) for cell in cells)])
    return table(rows)


def accuracy(method: dict) -> str:
    """98.6 ± 0.2, and where a learned radius went."""
    value, rho = method["test_accuracy"], method["radius"]
    text = f"{100 * value['mean']:.1f} ± {100 * value['std']:.1f}"
    return text if rho["start"] == rho["end"] else f"{text} (ρ {rho['start']:.2g} → {rho['end']:.2g})"


def estimators() -> str:
    """Agreement of the estimators with the exact hyper-gradient, from results/estimators.json."""
    record = json.loads((RESULTS / "estimators.json").read_text())
    head = ["estimator", "sign agrees", "correlation", "size", "sign follows the gap"]
    rows = [
        [f"`{name}`", share(x["sign"]), f"{x['correlation']:.2f}", f"{x['size']:.2g}", share(x["follows_gap"])]
        for name, x in record["estimators"].items()
    ]
    return table([head, *rows])


def share(x: float) -> str:
    """A share in per cent."""
    return f"{100 * x:.0f} %"


def label_noise(column: str) -> str:
    """A column of the paper's table of label noise, runs of full length alone: last epoch, best one, radius, paper."""
    recipe = load_recipe(RECIPES, "label-noise")
    rows = [["method", "passes a step", "last epoch", "best epoch", "ρ at the end", "runs", "the paper"]]
    for cell in find(recipe, records(RESULTS / recipe.records)):
        if cell.column == column and not cell.shortened:
            tested = [[x["test_accuracy"] for x in r["rows"] if x["test_accuracy"] is not None] for r in cell.records]
            last, best = (f"{100 * fmean(x):.2f}" for x in ([t[-1] for t in tested], map(max, tested)))
            radii = [r["result"]["rho"] for r in cell.records if r["result"]["rho"] is not None]
            published = recipe.published.get((cell.row, column))
            passes = f"{letsam.describe(cell.training.method).passes:g}"
            rows.append(
                [
                    f"`{cell.row}`",
                    passes,
                    f"**{last}**",
                    best,
                    f"{fmean(radii):.2g}" if radii else "–",
                    str(len(tested)),
                    "–" if published is None else f"{published[0]:.2f}",
                ]
            )
    return table(rows)


def recorded(name: str) -> dict | None:
    """A record of results/bench; None if it is not there, or was a trial."""
    path = RESULTS / "bench" / f"{name}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"tiny": True}
    return None if record.get("tiny") else record


def bench(names: tuple[str, ...], cell: Callable[[dict], str | None]) -> str:
    """One column a record of `letsam bench`, one row a contender that has a cell in one of them."""
    records = {name: record for name in names if (record := recorded(name)) is not None}
    cells = {
        name: {_contender(row): text for row in record["rows"] if not row["error"] and (text := cell(row)) is not None}
        for name, record in records.items()
    }
    rows = [
        [f"`{who}`", mode, *(column.get((who, mode), "") for column in cells.values())]
        for who, mode in dict.fromkeys(who for column in cells.values() for who in column)
    ]
    missing = [f"`{name}`" for name in names if name not in records]
    said = [table([["step", "mode", *records], *rows])] if records else []
    return "\n\n".join([*said, *([f"Not measured yet: {', '.join(missing)}."] if missing else [])])


def _contender(row: dict) -> tuple[str, str]:
    return "plain loop" if row["kind"] == "plain" else row["name"], row["mode"]


def step_time(row: dict) -> str:
    """12.3 (2.04×): ms, and beside the plain step."""
    return milliseconds(row["ms"]) + ("" if row["relative"] is None else f" ({row['relative']:.2f}×)")


def overhead(row: dict) -> str | None:
    """1.03×: beside two bare passes."""
    beside = row.get("relative_to_two_passes")
    return None if beside is None else f"{beside:.2f}×"


def peak(row: dict) -> str | None:
    """1.25: peak memory in GiB."""
    return None if row["peak_mib"] is None else f"{row['peak_mib'] / 1024:.2f}"


def faster(row: dict) -> str | None:
    """How many times as fast as each other implementation sam is."""
    known = row["speedups"].items() if row["name"] == "sam" else ()
    return ", ".join(f"{x:.2f}× {name}" for name, x in known) or None


def commands(names: tuple[str, ...]) -> str:
    """What was timed, with its command and its chart."""
    parts = []
    for name in names:
        if (record := recorded(name)) is not None:
            parts.append(f"{title(record)}:\n\n```bash\n{record['command']}\n```\n\n![{name}](images/bench-{name}.png)")
    return "\n\n".join(parts) or "Not measured yet."


def arithmetic(part: str) -> str:
    """Times, bandwidth and its share of that of a copy, kernels beside foreach, from results/bench/arithmetic.json."""
    if (record := recorded("arithmetic")) is None:
        return "Not measured yet."
    pairs: dict[tuple[str, str], dict[str, dict]] = {}
    for row in record[part]:
        pairs.setdefault((row["what"], row["model"]), {})[row["version"]] = row
    head = ["what", "parameters of", "useful GB", "kernels: ms", "of a copy", "foreach: ms", "of a copy"]
    rows = [
        [what, f"`{model}`", f"{pair['triton']['bytes'] / 1e9:.2f}", *_fast(pair["triton"]), *_fast(pair["foreach"])]
        for (what, model), pair in pairs.items()
    ]
    copy = f"A copy of 4 GiB: {record['copy']['gb_per_s']:.0f} GB/s on one {record['environment']['device']}."
    moved = [f"- {row['what']}: {_sum(row['parts'])}" for row in record[part] if "parts" in row]
    return "\n\n".join([copy, *(["\n".join(dict.fromkeys(moved))] if moved else []), table([head, *rows])])


def _fast(row: dict) -> list[str]:
    return [f"{row['ms']:.3f}", share(row["share"])]


def _sum(parts: dict[str, int]) -> str:
    """What a step has to move, in numbers a parameter."""
    return f"{' + '.join(f'{n} ({what})' for what, n in parts.items())} = {sum(parts.values())} numbers a parameter"


def sweep(name: str) -> str:
    """Step times beside the plain loop at every point of results/bench/sweep-NAME.json, and the chart."""
    if (record := recorded(f"sweep-{name}")) is None:
        return "Not measured yet."
    points = [
        (point, {_contender(row): row["ms"] for row in point["record"]["rows"] if not row["error"]})
        for point in record["points"]
    ]
    everybody = list(dict.fromkeys(who for _, times in points for who in times if who != ("plain loop", "eager")))
    rows = [[record["axis"], "plain loop, ms", *(f"{who}, {mode}" for who, mode in everybody)]]
    for point, times in points:
        plain = times["plain loop", "eager"]
        beside = [f"{times[who] / plain:.2f}×" if who in times else "failed" for who in everybody]
        rows.append([f"{point[record['axis']]:,}", milliseconds(plain), *beside])
    return f"{table(rows)}\n\n![{name}](images/sweep-{name}.png)"


def with_block(text: str, kind: str, content: str) -> str:
    """The text with the content between the markers of that kind; unchanged if it has no such markers."""
    block = re.compile(rf"(<!-- generated: {kind} -->\n).*?(<!-- end -->)", re.DOTALL)
    return block.sub(lambda markers: f"{markers[1]}\n{content}\n\n{markers[2]}", text)


def blocks(path: Path) -> dict[str, Callable[[], str]]:
    """What the blocks of a file should hold, by the kind of the block."""
    links = "" if path.parent == FOLDER else "docs/methods/"
    return {
        "methods": lambda: method_table(links),
        "describe": lambda: description(path.stem),
        "digits": lambda: digits(SHOWN if path.name == "README.md" else None),
        "estimators": estimators,
        "label-noise": partial(label_noise, "resnet18-40"),
        "bench-gpu": partial(bench, ON_GPU, step_time),
        "bench-others": partial(bench, ON_GPU, faster),
        "bench-overhead": partial(bench, ON_GPU + ON_CPU, overhead),
        "bench-memory": partial(bench, ON_GPU, peak),
        "bench-gpu-commands": partial(commands, ON_GPU),
        "bench-cpu": partial(bench, ON_CPU, step_time),
        "bench-cpu-commands": partial(commands, ON_CPU),
        "arithmetic-steps": partial(arithmetic, "steps"),
        "arithmetic-kernels": partial(arithmetic, "kernels"),
        **{f"sweep-{name}": partial(sweep, name) for name in ("size", "tensors", "batch")},
        "choices": lambda: table(tables.choices(RECIPES)),
        "reproduction": lambda: "\n\n".join(map(paper_table, of_the_paper())),
        "radius-grid": partial(radius_grid, STUDY),
        **{name: partial(radius_ablation, name) for name in ("radius-parts", "radius-constants")},
        "radius-tasks": partial(study_table, task_rows),
        "radius-verdicts": partial(study_table, verdict_rows),
        "radius-signal": partial(study_table, signal_rows),
        "radius-figures": partial(radius_figures, STUDY),
        "radius-price": radius_price,
    }


def of_the_paper() -> list[str]:
    """The recipes of the paper's tables and figures."""
    return [name for name in list_recipes(RECIPES) if load_recipe(RECIPES, name).records == REPRODUCTION]


def study_table(rows: Callable[..., tables.Rows]) -> str:
    """A table of the radius study, from results/radius."""
    recipe = load_recipe(RECIPES, STUDY)
    found = rows(recipe, records(RESULTS / recipe.records))
    return table(found) if len(found) > 1 else "Not run yet."


def radius_grid(name: str) -> str:
    """All cells of a table of the radius study, and how many of its runs there are."""
    where = RECIPES, RESULTS / load_recipe(RECIPES, name).records, name
    return f"{tables.headline(*where)}\n\n{table(tables.reproduction(*where))}"


def radius_ablation(name: str) -> str:
    """All cells of a table of the rule's parts or constants, and its figures."""
    return f"{radius_grid(name)}\n\n{radius_figures(name)}"


def radius_figures(name: str) -> str:
    """The figures of a table of the radius study."""
    found = drawings(load_recipe(RECIPES, name), RESULTS)
    return "\n\n".join(f"![{d.caption}](images/reproduction/{d.name}.png)" for d in found)


def radius_price() -> str:
    """What it costs to find a radius, from results/price: a table for each task of full length that was searched."""
    recipe, parts = load_recipe(RECIPES, STUDY), []
    for column in recipe.columns:
        rows = bill_rows(RESULTS / PRICE, column, recipe.cell("auto-sam", column, 0).epochs)
        if len(rows) > 1:
            parts.append(f"{column}:\n\n{table(rows)}")
    return "\n\n".join(parts) or "Not run yet."


def paper_table(name: str) -> str:
    """A table or figure of the paper: our cells or measures, and the figures that `letsam figures` draws."""
    recipe, where = load_recipe(RECIPES, name), (RECIPES, RESULTS / "reproduction", name)
    parts = [f"### {name}\n{tables.headline(*where)}"]
    if not isinstance(recipe, Figure):
        parts.append(table(tables.reproduction(*where)))
    elif recipe.kind == "loss-landscape":
        measured = tables.flatness(recipe, RESULTS / "measures")
        parts += [table(measured)] if len(measured) > 1 else ["Not measured yet."]
    parts += [f"![{d.caption}](images/reproduction/{d.name}.png)" for d in drawings(recipe, RESULTS)]
    return "\n\n".join(parts)


def generated() -> dict[Path, str]:
    """Every page, as it should be."""
    files = {}
    for path in [ROOT / "README.md", *sorted(FOLDER.parent.glob("*.md")), *sorted(FOLDER.glob("*.md"))]:
        files[path] = path.read_text(encoding="utf-8")
        for kind, content in blocks(path).items():
            if f"<!-- generated: {kind} -->" in files[path]:
                files[path] = with_block(files[path], kind, content())
    return files


def main() -> int:
    """Rewrite or check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the generated blocks of README.md and docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a block is out of date")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is out of date: run python docs/generate.py' if check else 'rewritten'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
