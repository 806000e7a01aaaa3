"""The clock. `run(settings)` times every contender and returns the record."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from ..experiments.models import count
from ..experiments.record import finite
from .contenders import Contender, Stage, Step, contenders
from .display import Lines
from .record import describe_device, new_record
from .rows import Timing, disturbed, make_row, relate
from .settings import Settings

Result = dict[Contender, Timing | str]
ROUNDS = 3


def run(settings: Settings, display: Lines | None = None) -> dict[str, Any]:
    """Time everybody; returns the record. ValueError for settings that make no sense, before any work."""
    settings = settings.resolved()
    everybody, notes = contenders(settings)
    with tuned(), display or Lines(Console(quiet=True)) as shown:
        stage = Stage(settings)
        cuda = stage.device.startswith("cuda")
        timings = (on_cuda if cuda else on_cpu)(stage, everybody, shown)
        rows = [make_row(c.name, c.kind, c.mode, timings[c]) for c in everybody]
        relate(rows, [timings[c] for c in everybody], paired=not cuda)
        model, device = count(stage.task.model("meta")), describe_device(stage.device)
        return finite(new_record(settings, device, model, rows, [*notes, *disturbed(rows)], paired=not cuda))


def on_cpu(stage: Stage, everybody: list[Contender], display: Lines) -> Result:
    """Step t of everybody before step t + 1 of anybody: a machine that slows down slows all of a round down."""
    warmup, total = _rounds(stage.settings)
    results: Result = {}
    steps: dict[Contender, Step] = {}
    for contender in everybody:
        try:
            steps[contender] = contender.make(stage)
        except Exception as error:  # whatever is wrong with one, the others go on
            results[contender] = one_line(error)
    times: dict[Contender, list[tuple[float, int]]] = {contender: [] for contender in steps}
    losses: dict[Contender, Tensor] = {}
    for t in range(total):
        display.at(t, total, "rounds of one step each")
        for contender in [c for c in steps if c not in results]:
            begin = time.perf_counter()
            try:
                losses[contender], passes = steps[contender](t)
            except Exception as error:
                results[contender] = one_line(error)
                continue
            times[contender].append((1000 * (time.perf_counter() - begin), passes))
    for contender in [c for c in steps if c not in results]:
        timed = times[contender][warmup:]
        ms, passes_made = [x for x, _ in timed], [n for _, n in timed]
        results[contender] = Timing(ms, passes_made, fmean(ms), float(losses[contender]))
    return results


def on_cuda(stage: Stage, everybody: list[Contender], display: Lines) -> Result:
    """One after the other, each alone in the memory.

    Eager steps wait for the host, whose speed drifts within minutes: they are timed in rounds of everybody, a part of
    the steps in each, so that no contender has the good minute to itself.
    """
    results: Result = {}
    rounds = {c: ROUNDS if c.mode == "eager" else 1 for c in everybody}
    turns = [c for number in range(ROUNDS) for c in everybody if number < rounds[c]]
    turns.sort(key=lambda c: c.mode != "eager")  # stable: eager rounds first, then the others
    with torch.cuda.device(stage.device):
        _one_on_cuda(turns[0], stage, 1)  # kernels are chosen and libraries loaded: not at the first one's cost
        for number, contender in enumerate(turns):
            if isinstance(before := results.get(contender), str):
                continue  # it failed, and would again
            display.at(number, len(turns), str(contender))
            now = _one_on_cuda(contender, stage, rounds[contender])
            results[contender] = timing = joined(before, now)
            said = f"failed: {timing}" if isinstance(timing, str) else f"{timing.mean_ms:.2f} ms a step"
            display.ended(f"{number + 1}/{len(turns)} {contender}: {said}")
    return results


def joined(before: Timing | None, now: Timing | str) -> Timing | str:
    """The steps of two rounds as those of one; a failure is one of both."""
    if before is None or isinstance(now, str):
        return now
    times = before.times + now.times
    return Timing(
        times=times,
        passes=before.passes + now.passes,
        mean_ms=(before.mean_ms * len(before.times) + now.mean_ms * len(now.times)) / len(times),
        loss=now.loss,
        peak_mib=max(before.peak_mib or 0.0, now.peak_mib or 0.0),
        reserved_mib=max(before.reserved_mib or 0.0, now.reserved_mib or 0.0),
    )


def _one_on_cuda(contender: Contender, stage: Stage, rounds: int) -> Timing | str:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        return _time_on_cuda(contender.make(stage), stage.settings, rounds)
    except Exception as error:  # out of memory, above all
        return one_line(error)


def _time_on_cuda(step: Step, settings: Settings, rounds: int) -> Timing:
    """An event between steps and no wait: the host runs ahead, as it does in training.

    The peak of the memory is that of the warm-up too, since a graph claims what its passes need when it is captured.
    """
    warmup, total = _rounds(settings)
    if rounds > 1:
        total = warmup + min(total - warmup, _tens(-(-(total - warmup) // rounds)))
    for t in range(warmup):
        step(t)
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(total - warmup + 1)]
    passes = []
    events[0].record()
    for t, event in zip(range(warmup, total), events[1:], strict=True):
        loss, number = step(t)
        event.record()
        passes.append(number)
    torch.cuda.synchronize()
    return Timing(
        times=[before.elapsed_time(after) for before, after in pairwise(events)],
        passes=passes,
        mean_ms=events[0].elapsed_time(events[-1]) / len(passes),
        loss=float(loss),
        peak_mib=torch.cuda.max_memory_allocated() / 2**20,
        reserved_mib=torch.cuda.max_memory_reserved() / 2**20,
    )


def _tens(steps: int) -> int:
    """At least so many, and tens: every tenth step of some methods costs more, and each round has its share of them."""
    return 10 * -(-steps // 10)


@contextmanager
def tuned() -> Iterator[None]:
    """cuDNN looks for the fastest kernels meanwhile."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def one_line(error: Exception) -> str:
    """An error in at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _rounds(settings: Settings) -> tuple[int, int]:
    """Steps before the clock runs, and in all."""
    assert settings.warmup is not None
    assert settings.steps is not None
    return settings.warmup, settings.warmup + settings.steps
