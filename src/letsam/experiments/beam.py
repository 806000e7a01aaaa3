"""Beam search over a batch of sources, with the keys and values of earlier tokens kept.

A hypothesis y has the score Σ log p(yᵢ) / |y|^α, EOS counted. In every step the best 2·beam continuations of each
source are looked at: of the first `beam`, those that end are done, and the best `beam` that do not end go on. A source
is done with `beam` finished hypotheses; one that has reached its longest length has to end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .data.bpe import BOS, EOS, PAD
from .models.translator import Translator

BEAM, LENGTH_PENALTY = 5, 1.0
NEVER = -torch.inf


@torch.no_grad()
def translate(
    model: Translator, source: Tensor, beam: int = BEAM, penalty: float = LENGTH_PENALTY, longest: Tensor | None = None
) -> list[list[int]]:
    """The best translation of every source, without BOS and EOS; `longest` is 2·source + 10 tokens if not given."""
    n, device = len(source), source.device
    longest = 2 * (source != PAD).sum(1) + 10 if longest is None else longest
    first = torch.arange(n, device=device)[:, None] * beam
    cache = model.start(source.repeat_interleave(beam, 0))
    tokens = torch.full((n * beam, 1), BOS, device=device)
    scores = torch.full((n, beam), NEVER, device=device)
    scores[:, 0] = 0  # all beams are equal at first: one of them goes on
    best, answers = torch.full((n,), NEVER, device=device), torch.full((n, int(longest.max()) + 1), PAD, device=device)
    finished = torch.zeros(n, dtype=torch.long, device=device)
    for t in range(answers.shape[1]):
        logits = model.step(tokens[:, -1], cache).float().log_softmax(-1).view(n, beam, -1)
        logits[..., :EOS] = NEVER  # neither PAD nor BOS is ever said
        logits = torch.where((t >= longest)[:, None, None] & ~_is_end(logits), NEVER, logits)
        vocabulary = logits.shape[-1]
        found, which = (scores[:, :, None] + logits).flatten(1).topk(min(2 * beam, beam * vocabulary))
        parents, words = which // vocabulary, which % vocabulary
        ended = (words == EOS) & (found > NEVER)
        ended[:, beam:] = False
        done = finished >= beam
        _keep_best(best, answers, tokens, first + parents, found / (t + 1) ** penalty, ended & ~done[:, None])
        finished += ended.sum(1)
        if bool((finished >= beam).logical_or(t >= longest).all()):
            break
        scores, go_on = torch.where(words == EOS, NEVER, found).topk(beam)
        rows = (first + parents.gather(1, go_on)).flatten()
        tokens = torch.cat([tokens[rows], words.gather(1, go_on).view(-1, 1)], 1)
        cache.reorder(rows)
    return [[token for token in answer if token != PAD] for answer in answers.tolist()]


def _is_end(logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[-1], device=logits.device) == EOS


def _keep_best(best: Tensor, answers: Tensor, tokens: Tensor, rows: Tensor, scores: Tensor, ended: Tensor) -> None:
    """Of the hypotheses that ended, put the best of each source in its place, if it is better than what is there."""
    score, which = torch.where(ended, scores, NEVER).max(1)
    better = score > best
    new = tokens[rows.gather(1, which[:, None])[:, 0]][:, 1:]
    best.copy_(torch.where(better, score, best))
    kept = torch.full_like(answers, PAD)
    kept[:, : new.shape[1]] = new
    answers.copy_(torch.where(better[:, None], kept, answers))
