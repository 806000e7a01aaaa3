"""The translator, its loss and beam search: exact where they can be."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax

import letsam
from letsam.closures import evaluate
from letsam.experiments.beam import translate
from letsam.experiments.data.bpe import BOS, EOS, PAD
from letsam.experiments.models import TRANSLATORS, count, create_translator
from letsam.experiments.models.translator import Translator, places
from letsam.experiments.smoothing import token_loss
from small_text import random_tokens


def small(vocabulary=11, seed=0, **options):
    torch.manual_seed(seed)
    options = {"width": 16, "hidden": 32, "heads": 2, "depth": 2, "dropout": 0.0} | options
    return Translator(vocabulary, **options).double().eval()


def test_the_sizes():
    with torch.device("meta"):
        sizes = {name: count(create_translator(name, 10_000))["parameters"] for name in TRANSLATORS}
    layers = 6 * (4 * (512**2 + 512) + 2 * 512 * 1024 + 1024 + 512 + 4 * 512)
    layers += 6 * (8 * (512**2 + 512) + 2 * 512 * 1024 + 1024 + 512 + 6 * 512)
    assert sizes["transformer-iwslt"] == 2 * 10_000 * 512 + layers
    assert sizes["transformer-tiny"] == 3_885_056
    with pytest.raises(ValueError, match="3 heads do not divide a width of 16"):
        small(heads=3)


def test_input_and_output_embedding_of_the_decoder_are_one():
    model = small()
    names = [name for name, p in model.named_parameters() if p.shape == (11, 16)]
    assert names == ["source_embed.weight", "target_embed.weight"]
    source, target = random_tokens(2, 5, 11), torch.full((2, 5), 8)
    before = model(source, target).detach()
    with torch.no_grad():
        model.target_embed.weight[7] *= 2  # a word that is not given
    torch.testing.assert_close(model(source, target)[..., 7], 2 * before[..., 7])
    with torch.no_grad():
        model.target_embed.weight[8] *= 2  # one that is
    assert not torch.allclose(model(source, target)[..., 9], before[..., 9])


def test_places_by_the_formula():
    found = places(3, 4, 6, torch.zeros((), dtype=torch.float64))
    for p, i in itertools.product(range(4), range(3)):
        angle = (p + 3) * 10_000 ** (-2 * i / 6)
        assert float(found[p, i]) == pytest.approx(math.sin(angle), abs=1e-12)
        assert float(found[p, i + 3]) == pytest.approx(math.cos(angle), abs=1e-12)


def test_one_token_at_a_time_gives_what_the_whole_gives():
    model = small(depth=3)
    source, target = random_tokens(4, 7, 11), random_tokens(4, 9, 11, seed=1)
    source[1, 4:] = source[3, 1:] = PAD
    whole, cache = model(source, target), model.start(source)
    steps = [model.step(target[:, i], cache) for i in range(9)]
    torch.testing.assert_close(torch.stack(steps, 1), whole, rtol=0, atol=1e-12)
    assert cache.length == 9


def test_rows_of_the_cache_change_places():
    model = small()
    source = random_tokens(1, 5, 11).expand(3, -1)
    target = random_tokens(3, 4, 11, seed=1)
    cache, rows = model.start(source), torch.tensor([2, 2, 0])
    for i in range(3):
        model.step(target[:, i], cache)
    cache.reorder(rows)
    found = model.step(target[:, 3], cache)
    expected = model(source, torch.cat([target[rows, :3], target[:, 3:]], 1))[:, 3]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_target_does_not_look_ahead():
    model, source, target = small(), random_tokens(2, 5, 11), random_tokens(2, 8, 11, seed=1)
    changed = target.clone()
    changed[:, 4:] = 5
    torch.testing.assert_close(model(source, target)[:, :4], model(source, changed)[:, :4], rtol=0, atol=1e-12)


def padded(tokens, columns, rows=0):
    wide = torch.cat([tokens, torch.full((len(tokens), columns), PAD)], 1)
    return torch.cat([wide, torch.full((rows, wide.shape[1]), PAD)])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_changes_neither_loss_nor_gradient(smoothing):
    model, source, target = small(), random_tokens(3, 6, 11), random_tokens(3, 6, 11, seed=1)
    source[0, 3:] = target[1, 2:] = PAD
    shifted = torch.cat([torch.full((3, 1), BOS), target[:, :-1]], 1)
    loss = token_loss(model(source, shifted), target, smoothing)
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    more = padded(source, 4, rows=2)
    more[3:, 0] = EOS  # an empty row has something to look at
    other = token_loss(model(more, padded(shifted, 4, rows=2)), padded(target, 4, rows=2), smoothing)
    other.backward()
    assert abs(loss.item() - other.item()) < 1e-12
    for gradient, p in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=0, atol=1e-12)


def test_smoothing_by_hand_and_by_torch():
    torch.manual_seed(0)
    logits, target = torch.randn(2, 3, 5).double(), torch.tensor([[1, 4, PAD], [2, PAD, PAD]])
    total = 0.0
    for i, j in ((0, 0), (0, 1), (1, 0)):
        p = log_softmax(logits[i, j], 0)
        total += -0.9 * float(p[target[i, j]]) - 0.1 / 5 * float(p.sum())
    assert float(token_loss(logits, target, 0.1)) == pytest.approx(total / 3, abs=1e-12)
    by_torch = cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(token_loss(logits, target, 0.1), by_torch)
    rows = token_loss(logits, target, 0.1, per_sample=True)
    assert rows.shape == (2,)
    torch.testing.assert_close(rows.mean(), by_torch)


def test_a_closure_takes_the_three_tensors():
    model, source, target = small(), random_tokens(3, 6, 11), random_tokens(3, 6, 11, seed=1)
    opt = letsam.create("sam", torch.optim.SGD(model.parameters(), 0.1), model=model)
    loss = opt.step(letsam.closure(model, token_loss, (source, target, target)))
    assert float(loss) == pytest.approx(math.log(11), rel=0.5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_pass_is_one_graph_for_the_compiler(dropout):
    model = small(dropout=dropout).train(dropout > 0)
    source, target = random_tokens(3, 8, 11), random_tokens(3, 8, 11, seed=1)
    compiled = torch.compile(evaluate, backend="aot_eager", fullgraph=True, dynamic=False)
    loss_fn = partial(token_loss, label_smoothing=0.1)
    found = compiled(model, loss_fn, (source, target, target))
    found.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    if not dropout:
        torch.testing.assert_close(found, evaluate(model, loss_fn, (source, target, target)), rtol=0, atol=1e-12)


def scored(model, source, answer, penalty):
    """Σ log p / length^α of an answer, EOS counted."""
    target = torch.tensor([[*answer, EOS]])
    shifted = torch.cat([torch.full((1, 1), BOS), target[:, :-1]], 1)
    p = model(source[None], shifted).log_softmax(-1).gather(-1, target[..., None])
    return p.sum().item() / (len(answer) + 1) ** penalty


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 1.5])
def test_a_wide_beam_finds_the_best_of_all(penalty):
    model, longest = small(vocabulary=7, seed=3), 3
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)  # surer of itself than at the start
    source = random_tokens(3, 4, 7, seed=2)
    source[1, 2:] = PAD
    found = translate(model, source, beam=400, penalty=penalty, longest=torch.full((3,), longest))
    words = [w for w in range(7) if w not in (PAD, BOS, EOS)]
    every = [list(answer) for n in range(longest + 1) for answer in itertools.product(words, repeat=n)]
    for row, answer in zip(source, found, strict=True):
        best = max(every, key=lambda candidate: scored(model, row, candidate, penalty))
        assert answer == best


def test_a_beam_of_one_is_greedy():
    model = small(vocabulary=9, seed=5)
    source = random_tokens(4, 5, 9, seed=1)
    found = translate(model, source, beam=1, longest=torch.tensor([6, 6, 2, 0]))
    for row, answer, longest in zip(source, found, (6, 6, 2, 0), strict=True):
        tokens = [BOS]
        while len(tokens) - 1 < longest:
            logits = model(row[None], torch.tensor([tokens]))[0, -1]
            logits[[PAD, BOS]] = -torch.inf
            if int(logits.argmax()) == EOS:
                break
            tokens.append(int(logits.argmax()))
        assert answer == tokens[1:]


def test_a_translation_does_not_depend_on_its_neighbours():
    model = small(vocabulary=9, seed=5)
    source = random_tokens(5, 6, 9, seed=1)
    source[1, 3:] = source[4, 1:] = PAD
    together = translate(model, source)
    for row, answer in zip(source, together, strict=True):
        assert translate(model, row[row != PAD][None]) == [answer]
