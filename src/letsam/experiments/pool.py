"""Training runs in worker processes, one torch thread each, reporting through pipes."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from .config import Job

Message = tuple[str, Job, Any]
"""("start" | "epoch" | "note" | "done", job, row or text)."""


def work(jobs: list[Job], folder: Path, workers: int, device: str) -> Generator[Message]:
    """Train all jobs, at most `workers` at a time; yields what happens. Leaving the loop stops the workers."""
    waiting = deque(jobs)
    crew = [_start(folder, device) for _ in range(min(workers, len(jobs)))]
    busy: dict[Connection, tuple[BaseProcess, Job]] = {}
    try:
        for process, pipe in crew:
            busy[pipe] = process, waiting.popleft()
            pipe.send(busy[pipe][1])
            yield "start", busy[pipe][1], None
        while busy:
            for pipe in [pipe for pipe in wait(list(busy)) if isinstance(pipe, Connection)]:
                process, job = busy[pipe]
                kind, content = _receive(process, pipe, job)
                yield kind, job, content
                if kind == "done":
                    del busy[pipe]
                    following = waiting.popleft() if waiting else None
                    pipe.send(following)
                    if following is not None:
                        busy[pipe] = process, following
                        yield "start", following, None
    finally:
        _stop([process for process, _ in crew])


def _receive(process: BaseProcess, pipe: Connection, job: Job) -> tuple[str, Any]:
    try:
        kind, content = pipe.recv()
    except (EOFError, OSError):
        process.join(5)
        raise RuntimeError(f"{job}: the worker process ended with code {process.exitcode}") from None
    if kind == "failed":
        raise RuntimeError(f"{job}: {content}")
    return kind, content


def _start(folder: Path, device: str) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")  # fork and torch's threads do not go together
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(theirs, folder, device), daemon=True)
    with _deaf_to_ctrl_c():
        process.start()
    theirs.close()  # so that we notice when the worker ends, and it when we end
    return process, ours


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ctrl-C goes to every process of the terminal; workers inherit this mask, and are stopped by us alone."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing's helper; starting it later would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(processes: list[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _worker(pipe: Connection, folder: Path, device: str) -> None:
    import torch

    from .selection import loader
    from .train import train

    torch.set_num_threads(1)
    sets = loader(None, device)
    tell, say = (lambda row: pipe.send(("epoch", row))), (lambda text: pipe.send(("note", text)))
    try:
        while (job := pipe.recv()) is not None:
            try:
                train(job, folder, sets(job.config.data), device, tell, say)
            except (ValueError, TypeError, RuntimeError, OSError) as error:
                pipe.send(("failed", " ".join(str(error).split())))
                return
            pipe.send(("done", None))
    except (EOFError, ConnectionError):
        return  # the main process is gone: so are we, at the end of an epoch at the latest
