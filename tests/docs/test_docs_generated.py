"""The generated blocks of README.md and docs say what the registry and the records say now."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import letsam

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_would_change():
    """Files without markers pass; a block that is out of date fails, in README.md too."""
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_block_is_found_and_rewritten(generate, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "docs" / "methods"
    folder.mkdir(parents=True)
    without_markers = tmp_path / "README.md"
    without_markers.write_text("no markers\n")
    (folder / "README.md").write_text("<!-- generated: methods -->\nold\n<!-- end -->\nkept\n")
    (folder / "lets.md").write_text("<!-- generated: describe -->\n<!-- end -->\n")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FOLDER", folder)

    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    assert "old" in (folder / "README.md").read_text()
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 0

    index = (folder / "README.md").read_text()
    assert "old" not in index
    assert index.endswith("kept\n")
    assert "| [`sam`](sam.md) |" in index
    assert str(letsam.describe("lets-sam")) in (folder / "lets.md").read_text()
    assert without_markers.read_text() == "no markers\n"
    assert "README.md rewritten" in capsys.readouterr().out


def test_the_table_has_every_method(generate):
    rows = generate.method_table("docs/methods/").splitlines()
    assert len(rows) == 2 + 13 + 2
    for name in letsam.list_methods():
        assert any(f"(docs/methods/{generate.page_of(name)}.md)" in row for row in rows)
