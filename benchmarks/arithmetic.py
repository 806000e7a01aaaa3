"""How near to the speed of the memory is the arithmetic around the passes? On a GPU, in float32.

    PYTHONPATH=src python benchmarks/arithmetic.py --out results/bench/arithmetic.json

`copy`: the bandwidth of a device-to-device copy of 4 GiB, bytes read and written over the median time. `steps`: all
that a step does but the passes and the base step (auto-sam: and the updates of its radius, every tenth step; with the
base step, after which it knows what to carry), driven through `opt.backward` with a closure that computes nothing:
it sets `.grad` to fixed gradients, as views, which is how captured passes leave theirs. `kernels`: each Triton kernel
alone. Both with the kernels and with foreach in their place. `bytes` are the useful ones: every operation reads its
inputs and writes its outputs once, `parts` says how many times the size of all parameters each of them moves; `share`
is their bandwidth beside that of the copy.

Times are medians on the device. The host is kept ahead of it, as it is behind a pass, and the cache of the device is
emptied before each repetition, as a pass does; `host_ms` is what the host needs to launch it all.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

import letsam
from letsam import tensors
from letsam.bench.record import describe_device
from letsam.bench.tasks import find_task
from letsam.experiments.config import Spec
from letsam.experiments.models import count
from letsam.experiments.record import environment, write_json
from letsam.perturbations import Where, filter_dimension
from letsam.space import Space

KIND = "letsam arithmetic"
DEVICE = "cuda"
SAM = {"norm of g": 1, "backup and move (θ, g → backup, θ)": 4, "finiteness of ĝ": 1, "restore": 2}
G = {"copy of g out of the pass's memory": 2, "⟨g,ĝ⟩ and ‖ĝ‖²": 2}
PARTS = {
    "sam": SAM,
    "asam": {**SAM, "T²g and ‖Tg‖ (θ, g → u)": 3},
    "gsam": {**SAM, **G, "ĝ ← ĝ − α(g − cĝ)": 3},
    "auto-sam": {**SAM, **G, "ĝ − g across ĝ (ĝ, g → b)": 3, "carry (b, R → R)": 3, "step of the base (θ, ĝ → θ)": 3},
}
STEP_MODEL = "decoder-350m"
KERNEL_MODELS = ("resnet18", "decoder-125m", "decoder-350m")
COPIED = 4 * 2**30
WARMUP = 5
AHEAD = 40_000_000
"""Cycles that the device sleeps, about 20 ms: longer than the host needs for a repetition."""
Work = Callable[[], Any]
Row = dict[str, Any]


def timed(work: Work, repeats: int) -> dict[str, float]:
    """Median milliseconds of the work on the device, and of its launch on the host."""
    scratch = torch.empty(2**28, device=DEVICE, dtype=torch.uint8)
    for _ in range(WARMUP):
        work()
    torch.cuda.synchronize()
    on_device, on_host = [], []
    for _ in range(repeats):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD)
        scratch.zero_()
        before.record()
        begin = time.perf_counter()
        work()
        on_host.append(1000 * (time.perf_counter() - begin))
        after.record()
        torch.cuda.synchronize()
        on_device.append(before.elapsed_time(after))
    return {"ms": median(on_device), "host_ms": median(on_host)}


def with_bandwidth(times: dict[str, float], moved: int, copy: float | None) -> Row:
    """The times, the useful bytes, and the bandwidth that they make."""
    speed = moved / times["ms"] / 1e6
    return {**times, "bytes": moved, "gb_per_s": speed, "share": None if copy is None else speed / copy}


def copy_bandwidth(repeats: int) -> Row:
    """Of one large tensor."""
    source = torch.zeros(COPIED // 4, device=DEVICE)
    target = torch.empty_like(source)
    return with_bandwidth(timed(lambda: target.copy_(source), repeats), 2 * COPIED, None)


@contextmanager
def version(name: str) -> Iterator[None]:
    """Inside, the arithmetic runs through the Triton kernels or through foreach alone."""
    before = tensors.kernel_table
    if name == "foreach":
        tensors.kernel_table = lambda *lists: None
    try:
        yield
    finally:
        tensors.kernel_table = before


def arithmetic(method: str, model: torch.nn.Module) -> Work:
    """One step of a method without its passes, and without its base if the method remembers nothing."""
    params = list(model.parameters())
    opt = letsam.create(method, torch.optim.SGD(params, lr=0.1), model=model)
    gradients = [x.view_as(x) for x in map(torch.randn_like, params)]
    loss = torch.ones((), device=DEVICE)

    def closure() -> torch.Tensor:
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient
        return loss

    def whole() -> None:
        opt.backward(closure)
        opt.base.step()

    return whole if opt.needs_validation else lambda: opt.backward(closure)


def backup_and_move(theta: tensors.Tensors, backup: tensors.Tensors, step: tensors.Scaled) -> None:
    """What `tensors.moved` begins with."""
    table = tensors.kernel_table(theta, backup, step.u)
    if table is None:
        tensors.copy_(backup, theta)
        tensors.add_scaled_(theta, step.u, step.s)
    else:
        done = torch.zeros((), dtype=torch.int32, device=theta[0].device)
        tensors.kernels().move_(table, step.s, done)


def across(space: Space, a: tensors.Tensors, b: tensors.Tensors) -> None:
    """What is left of a − b without its part along a."""
    if not space.across_(a, b):
        difference = list(torch._foreach_sub(a, b))
        along = tensors.ratio(*space.dots((difference, a), (a, a)))
        tensors.add_scaled_(difference, a, -along)


def kernels(model: torch.nn.Module) -> dict[str, tuple[int, Work]]:
    """Each operation that has a kernel, with how many times the size of all parameters it has to move."""
    space = Space(list(model.parameters()))
    theta = [p.detach() for p in space.params]
    a, b, backup = ([torch.randn_like(x) for x in theta] for _ in range(3))
    nothing = tensors.Scaled(a, tensors.scalar(0.0, space.device))
    fine = torch.ones((), dtype=torch.bool, device=space.device)
    filters = list(map(filter_dimension(model), space.params))
    at = Where(t=0, space=space, theta=theta, g=a, norm=space.norm(a), filters=filters, recall=lambda _: None)
    return {
        "‖a‖": (1, lambda: space.norm(a)),
        "⟨a,a⟩, ⟨a,b⟩, ⟨b,b⟩": (2, lambda: space.dots((a, a), (a, b), (b, b))),
        "T²g and ‖Tg‖": (3, lambda: letsam.Adaptive().direction(a, at)),
        "backup and move": (4, lambda: backup_and_move(theta, backup, nothing)),
        "a − b across a": (5, lambda: across(space, a, b)),
        "b + 0.9·a": (3, lambda: tensors.carry_(fine, b, a, 0.9)),
    }


def build(name: str) -> torch.nn.Module:
    """A model of `letsam bench`, on the GPU; what was there before is gone."""
    gc.collect()
    torch.cuda.empty_cache()
    return find_task(Spec.parse(name)).model(DEVICE)


def compare(facts: Row, factor: int, model: torch.nn.Module, work: Work, copy: float, repeats: int) -> list[Row]:
    """A row with the kernels, and one with foreach."""
    moved, rows = 4 * factor * count(model)["parameters"], []
    for name in ("triton", "foreach"):
        with version(name):
            rows.append({**facts, "version": name, **with_bandwidth(timed(work, repeats), moved, copy)})
        print(line(rows[-1]), flush=True)
    return rows


def measure_steps(copy: float, repeats: int) -> list[Row]:
    """The arithmetic of whole steps."""
    rows = []
    for method, parts in PARTS.items():
        model = build(STEP_MODEL)
        facts = {"what": method, "model": STEP_MODEL, "parts": parts}
        rows += compare(facts, sum(parts.values()), model, arithmetic(method, model), copy, repeats)
        del model
    return rows


def measure_kernels(copy: float, repeats: int) -> list[Row]:
    """Each kernel alone, on lists of different sizes."""
    rows = []
    for name in KERNEL_MODELS:
        model = build(name)
        for what, (factor, work) in kernels(model).items():
            rows += compare({"what": what, "model": name}, factor, model, work, copy, repeats)
        del model, work
    return rows


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"{row['what']:<20} {row['model']:<13} {row['version']:<8} {row['ms']:8.3f} {row['host_ms']:8.3f} "
        f"{row['bytes'] / 1e9:8.3f} {row['gb_per_s']:8.0f} {100 * row['share']:6.0f} %"
    )


@torch.no_grad()
def measure(repeats: int) -> dict[str, Any]:
    """Everything, as a record; prints the table meanwhile."""
    copy = copy_bandwidth(repeats)
    speed = copy["gb_per_s"]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copy {speed:.0f} GB/s")
    print(f"{'what':<20} {'model':<13} {'version':<8} {'ms':>8} {'host ms':>8} {'GB':>8} {'GB/s':>8} {'of copy':>8}")
    return {
        "kind": KIND,
        "command": f"python benchmarks/arithmetic.py --repeats {repeats}",
        "environment": {**environment(), **describe_device(DEVICE)},
        "copy": copy,
        "steps": measure_steps(speed, repeats),
        "kernels": measure_kernels(speed, repeats),
    }


def obstacle() -> str | None:
    """Why nothing can be measured here."""
    if not torch.cuda.is_available():
        return "there is no CUDA device here, and this measures one"
    return None if tensors.has_triton() else "Triton is missing, and its kernels are what is measured: install triton"


def main() -> int:
    """Measure and write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=30, help="timed repetitions of each row (default 30)")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats is {args.repeats}; give at least 1")
    if (problem := obstacle()) is not None:
        print(f"arithmetic: {problem}", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, measure(args.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
