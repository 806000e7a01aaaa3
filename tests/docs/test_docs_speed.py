"""The blocks of docs/speed.md, from records made up here: what is missing is said, what is there is shown."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "speed.md"


@pytest.fixture
def generate(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("docs_generate_speed", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def row(name, kind, mode, ms, **more):
    nothing = {"relative": None, "relative_to_two_passes": None, "speedups": {}, "peak_mib": None, "error": None}
    return {"name": name, "kind": kind, "mode": mode, "ms": ms, **nothing, **more}


def record(*rows):
    return {
        "kind": "letsam bench",
        "command": "letsam bench --model resnet18",
        "settings": {"model": "resnet18", "batch": 128, "base": "sgd", "dtype": "bfloat16"},
        "environment": {"device": "a card", "torch": "9.9"},
        "model": {"parameters": 11_173_962, "tensors": 62},
        "rows": list(rows),
    }


ROWS = (
    row("torch SGD", "plain", "eager", 10.0, relative=1.0, peak_mib=512.0),
    row("two passes", "two passes", "eager", 20.0, relative=2.0),
    row("other.SAM", "peer", "eager", 30.0, relative=3.0, relative_to_two_passes=1.5),
    row("sam", "letsam", "eager", 22.0, relative=2.1, relative_to_two_passes=1.1, speedups={"other.SAM": 30 / 22}),
    row("sam", "letsam", "captured", 5.0, relative=2.05, speedups={"other.SAM": 6.0}, peak_mib=1536.0),
    row("gsam", "letsam", "captured", None, error="out of memory"),
)


def put(generate, name, content):
    (generate.RESULTS / "bench" / f"{name}.json").write_text(json.dumps(content))


def block(generate, kind):
    return generate.blocks(PAGE)[kind]()


def test_every_block_of_the_page_is_known_and_copes_with_nothing(generate):
    kinds = [line[len("<!-- generated: ") : -len(" -->")] for line in PAGE.read_text().splitlines() if "<!-- g" in line]
    assert len(kinds) == len(set(kinds)) == 12
    for kind in kinds:
        assert block(generate, kind).startswith("Not measured yet")


def test_step_times(generate):
    put(generate, "resnet18", record(*ROWS))
    put(generate, "vit-s", record(row("torch AdamW", "plain", "eager", 4.0, relative=1.0)))
    text = block(generate, "bench-gpu")
    assert "| step | mode | resnet18 | vit-s |" in text
    assert "| `plain loop` | eager | 10.0 (1.00×) | 4.00 (1.00×) |" in text
    assert "| `sam` | captured | 5.00 (2.05×) |  |" in text
    assert "gsam" not in text
    assert text.endswith("Not measured yet: `wrn28-10`, `decoder-125m`.")


def test_others_overhead_and_memory(generate):
    put(generate, "resnet18", record(*ROWS))
    others = block(generate, "bench-others")
    assert "| `sam` | eager | 1.36× other.SAM |" in others
    assert "| `sam` | captured | 6.00× other.SAM |" in others
    overhead = block(generate, "bench-overhead")
    assert "| `other.SAM` | eager | 1.50× |" in overhead
    assert "| `sam` | eager | 1.10× |" in overhead
    assert "captured" not in overhead
    memory = block(generate, "bench-memory")
    assert "| `sam` | captured | 1.50 |" in memory
    assert "two passes" not in memory


def test_commands_and_charts(generate):
    put(generate, "resnet18", record(*ROWS))
    text = block(generate, "bench-gpu-commands")
    assert "batch 128, sgd, bfloat16, a card, torch 9.9:\n\n```bash\nletsam bench --model resnet18\n```" in text
    assert text.endswith("![resnet18](images/bench-resnet18.png)")
    assert block(generate, "bench-cpu-commands") == "Not measured yet."


def test_sweeps(generate):
    points = [{"batch": 2048, "record": record(*ROWS)}, {"batch": 32, "record": record(*ROWS[:2])}]
    sweep = {"kind": "letsam sweep", "axis": "batch", "tiny": False, "points": points}
    put(generate, "sweep-batch", sweep)
    put(generate, "sweep-size", sweep | {"tiny": True})
    text = block(generate, "sweep-batch")
    assert "| 2,048 | 10.0 | 2.00× | 3.00× | 2.20× | 0.50× |" in text
    assert "| 32 | 10.0 | 2.00× | failed | failed | failed |" in text
    assert text.endswith("![batch](images/sweep-batch.png)")
    assert block(generate, "sweep-size") == "Not measured yet."  # trials are not shown


def test_arithmetic(generate):
    def pair(what, **more):
        facts = {"what": what, "model": "decoder-350m", "bytes": 8e9, **more}
        return [
            {**facts, "version": "triton", "ms": 2.0, "share": 0.9},
            {**facts, "version": "foreach", "ms": 4.0, "share": 0.45},
        ]

    put(
        generate,
        "arithmetic",
        {
            "kind": "letsam arithmetic",
            "environment": {"device": "a card"},
            "copy": {"gb_per_s": 4000.0},
            "steps": pair("sam", parts={"norm": 1, "move": 4}),
            "kernels": pair("‖a‖"),
        },
    )
    text = block(generate, "arithmetic-steps")
    assert "A copy of 4 GiB: 4000 GB/s on one a card." in text
    assert text.count("- sam: 1 (norm) + 4 (move) = 5 numbers a parameter") == 1
    assert "| sam | `decoder-350m` | 8.00 | 2.000 | 90 % | 4.000 | 45 % |" in text
    assert "| ‖a‖ | `decoder-350m` | 8.00 |" in block(generate, "arithmetic-kernels")
