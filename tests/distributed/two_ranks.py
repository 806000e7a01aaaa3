"""Two real processes that train together over gloo, kept alive between the tests of a session."""

import multiprocessing
import pickle
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

RANKS = 2
PATIENCE = 60  # seconds until a rank that waits for the other one counts as stuck


class World:
    """run(f, …) calls f(…) on both ranks and returns their answers, rank 0 first.

    A failure on either ends the processes; the next run starts new ones.
    """

    def __init__(self):
        self._processes, self._pipes, self._folder = [], [], None

    def run(self, function, *args):
        if not self._processes:
            self._begin()
        try:
            for pipe in self._pipes:
                pipe.send((function, args))
            return self._answers()
        except BaseException:
            self.end()
            raise

    def _answers(self):
        answers = {}
        while len(answers) < RANKS:
            ready = wait([pipe for pipe in self._pipes if pipe not in answers], PATIENCE)
            assert ready, "a rank is stuck"
            for pipe in ready:
                worked, answers[pipe] = pickle.loads(pipe.recv_bytes())
                assert worked, answers[pipe]
        return [answers[pipe] for pipe in self._pipes]

    def end(self):
        for process in self._processes:
            process.kill()
            process.join()
        if self._folder is not None:
            self._folder.cleanup()  # left to the collector, it warns in whatever test is the last
        self._processes, self._pipes, self._folder = [], [], None

    def _begin(self):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        meeting = Path(self._folder.name) / "meeting"
        for rank in range(RANKS):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, f"file://{meeting}", there), daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)


def _serve(rank, meeting, pipe):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", meeting, timedelta(seconds=PATIENCE), RANKS, rank)
    while True:
        function, args = pipe.recv()
        try:
            answer = True, function(*args)
        except Exception:
            answer = False, f"rank {rank}: {traceback.format_exc()}"
        pipe.send_bytes(pickle.dumps(answer))  # plain bytes: pipe.send would share the memory of tensors
