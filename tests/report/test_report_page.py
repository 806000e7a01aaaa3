"""The page: self-contained, escaped, and really drawn by a browser."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from letsam.experiments.config import Config
from letsam.experiments.summary import Records, summarize
from letsam.report import render
from letsam.report.curves import colors, plots
from letsam.report.page import command

NAME = "<img src=x onerror=alert(1)> {{plotly}} & co"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def row(method: str, seed: int, epoch: int) -> dict[str, Any]:
    rho = {"erm": None, "sam:rho=0.1": 0.1}.get(method, 0.02 * math.exp(epoch / 4 + seed / 9))
    loss = math.exp(-epoch / 5) + 0.01 * seed
    fixed = {"passes": 2.0, "seconds": 0.1, "skipped": 0, "lr": 0.1}
    accuracy = 0.9 - 0.8 * math.exp(-epoch) + 0.01 * seed
    return {
        **fixed,
        "epoch": epoch,
        "rho": rho,
        "train_loss": loss,
        "test_loss": loss + 0.1,
        "test_accuracy": accuracy,
    }


def example(noise: float = 0.4) -> tuple[Config, Records]:
    config = Config(methods=("erm", "sam:rho=0.1", "auto-sam"), seeds=(3,), epochs=12, noise=noise).resolved()
    records = {}
    for method, seed in ((method, seed) for method in config.methods for seed in config.seeds):
        rows = [row(method, seed, epoch) for epoch in range(1, 13)]
        for untested in rows[::4]:
            untested |= {"test_loss": None, "test_accuracy": None}
        records[method, seed] = {"rows": rows, "result": rows[-1], "weights": "0"}
    return config, records


def summary(config: Config, records: Records) -> dict[str, Any]:
    return summarize(config, records, {"erm": None, "sam:rho=0.1": 0.1, "auto-sam": 0.02})


def page(name: str = NAME) -> str:
    config, records = example()
    return render(name, config, {"torch": "<2.13>", "revision": None}, summary(config, records), records)


def without_scripts(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_names_are_escaped_and_never_templates() -> None:
    text = without_scripts(page())
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; {{plotly}} &amp; co" in text
    assert "&lt;2.13&gt;" in text


def test_nothing_comes_from_the_network() -> None:
    text = without_scripts(page())
    assert not re.search(r"""(src|href)\s*=|url\(|@import""", text.replace("src=x onerror", ""))
    assert "default-src 'none'" in text


def test_question_answer_table_and_command_are_there() -> None:
    text = without_scripts(page())
    for part in ("40 % wrong labels", "within the noise", " → ", "Generalization gap", "letsam compare --methods erm"):
        assert part in text
    assert text.count('<th scope="row">') == 3


def test_the_command_on_the_page_makes_the_same_configuration() -> None:
    from letsam.cli import _parse

    config, _ = example()
    words = [word.strip("'") for word in command(config).split()]
    assert _parse(words[1:]).config.resolved() == config


def test_curves() -> None:
    config, records = example()
    found = {plot["id"]: plot for plot in plots(config, records)}
    assert list(found) == ["test_accuracy", "train_loss", "gap", "rho"]
    assert found["rho"]["yaxis"]["type"] == "log"
    assert {trace["name"] for trace in found["rho"]["traces"]} == {"sam:rho=0.1", "auto-sam"}
    band, line = found["test_accuracy"]["traces"][:2]
    assert line["x"] == [2, 3, 4, 6, 7, 8, 10, 11, 12]  # the others were not tested
    assert band["y"][0] > line["y"][0] > band["y"][-1]
    assert found["gap"]["traces"][1]["y"] == pytest.approx([0.1] * 9)
    assert len(found["rho"]["traces"][1]["x"]) == 12
    assert len({color for color, _ in colors(config.methods).values()}) == 3


def test_a_diverged_run_still_makes_a_page() -> None:
    config, records = example()
    for row in records["sam:rho=0.1", 1]["rows"][3:]:
        row |= {"train_loss": None, "test_loss": None}
    text = render("x", config, {}, summary(config, records), records)
    data = re.search(r'id="data">(.*?)</script>', text)
    assert data
    plot = next(plot for plot in json.loads(data[1]) if plot["id"] == "train_loss")
    assert [len(trace["x"]) for trace in plot["traces"] if trace["name"] == "sam:rho=0.1"] == [6, 3]


PROBE = """<script>
document.querySelector('.chips button').click();
const lines = (id) => document.querySelectorAll('#' + id + ' .scatterlayer path.js-line').length;
document.body.dataset.probe = JSON.stringify(Object.fromEntries(plots.map((plot) => [plot.id, lines(plot.id)])));
console.error('seen?');
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_draws_the_curves_without_complaint(tmp_path: Path) -> None:
    whole, probed = tmp_path / "whole.html", tmp_path / "probed.html"
    whole.write_text(page(), encoding="utf-8")
    probed.write_text(page().replace("</body>", PROBE + "</body>"), encoding="utf-8")
    dom, log = browse(whole, tmp_path)
    assert "CONSOLE" not in log, log
    for plot in ("test_accuracy", "train_loss", "gap", "rho"):
        drawn = dom.split(f'id="{plot}"')[1].split("</figure>")[0]
        lines = re.findall(r'<path class="js-line"[^>]*\sd="(M[^"]+)"', drawn)
        assert len(lines) >= (2 if plot == "rho" else 3), plot
        assert all("L" in line or "C" in line for line in lines)
    dom, log = browse(probed, tmp_path)
    assert "CONSOLE" in log, "an error in the page would be seen"
    counts = re.search(r'data-probe="([^"]+)"', dom)
    assert counts
    hidden = json.loads(counts[1].replace("&quot;", '"'))
    assert hidden == {"test_accuracy": 4, "train_loss": 4, "gap": 4, "rho": 4}  # two methods: band and mean


def browse(file: Path, home: Path, *more: str) -> tuple[str, str]:
    flags = [*more, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    flags += ["--disable-component-update", "--virtual-time-budget=5000", "--enable-logging=stderr", "--dump-dom"]
    arguments = [str(CHROMIUM), *flags, f"--user-data-dir={home / 'profile'}", file.as_uri()]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr
