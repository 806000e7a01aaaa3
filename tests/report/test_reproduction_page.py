"""A browser shows the page of tables and figures: every picture, in the width of a phone, without complaint."""

import json
import re
from pathlib import Path

import pytest
from test_report_page import CHROMIUM, browse

from letsam.experiments.drawing import Drawing
from letsam.experiments.recipe import load_recipe
from letsam.measure import figures
from letsam.report.reproduction import Section, write_page

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
PROBE = """<script>
document.body.dataset.probe = JSON.stringify({
  drawn: [...document.images].map((image) => image.naturalWidth > 100),
  width: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_shows_every_picture_in_the_width_of_a_phone(tmp_path):
    lines = Drawing("lines", "a <caption>", lambda path: figures.convergence({"sam": [[2.0, 1.0, 0.5]]}, path))
    area = Drawing("area", "wide", lambda path: figures.convergence({"erm": [[2.0, 1.0]]}, path), area=True)
    for drawing in (lines, area):
        drawing.draw(tmp_path / drawing.name)
    sections = [Section(load_recipe(FOLDER, "cifar10"), [lines, area], "Some are missing.")]
    page = tmp_path / "page.html"
    write_page(page, sections, tmp_path / "no-results", tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "a &lt;caption&gt;" in text
    _, log = browse(page, tmp_path)
    assert "CONSOLE" not in log, log
    probed = text.replace("</body>", PROBE + "</body>").replace(
        "default-src", "script-src 'unsafe-inline'; default-src"
    )
    page.write_text(probed, encoding="utf-8")
    dom, _ = browse(page, tmp_path, "--window-size=390,800")
    found = re.search(r'data-probe="([^"]+)"', dom)
    assert found
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["drawn"] == [True, True]
    assert seen["width"] <= seen["room"] <= 500  # what chromium makes of 390, depending on its version
