"""Known values of the metrics of GLUE, and what they are where the formula divides by nothing."""

import math

import pytest
import torch

from letsam.experiments.glue_metrics import accuracy, f1, matthews, pearson, spearman

TRUE = torch.tensor([1, 1, 1, 0, 0, 0, 0, 1])
SAID = torch.tensor([1, 1, 0, 0, 0, 1, 0, 1])  # TP 3, TN 3, FP 1, FN 1


def test_classes():
    assert accuracy(SAID, TRUE) == 0.75
    assert f1(SAID, TRUE) == pytest.approx(6 / 8)
    assert matthews(SAID, TRUE) == pytest.approx((9 - 1) / 16)
    unequal = torch.tensor([1, 0, 0, 0]), torch.tensor([1, 1, 1, 0])  # TP 1, FN 2, TN 1, FP 0
    assert f1(*unequal) == pytest.approx(2 / 4)
    assert matthews(*unequal) == pytest.approx(1 / math.sqrt(1 * 3 * 1 * 3))


def test_the_example_of_scikit_learn():
    true, said = torch.tensor([1, 1, 1, 0]), torch.tensor([1, 0, 1, 1])
    assert matthews(said, true) == pytest.approx(-0.33, abs=0.005)


def test_all_right_all_wrong_and_one_class_alone():
    assert (matthews(TRUE, TRUE), matthews(1 - TRUE, TRUE), f1(TRUE, TRUE)) == (1, -1, 1)
    ones, zeros = torch.ones(4).long(), torch.zeros(4).long()
    assert (matthews(ones, torch.tensor([0, 1, 0, 1])), f1(zeros, zeros)) == (0, 0)
    assert f1(ones, zeros) == 0


def test_scores():
    x, y = torch.tensor([1.0, 2, 3, 4, 5]), torch.tensor([5.0, 6, 7, 8, 7])
    assert pearson(x, y) == pytest.approx(0.8320502943)  # scipy's example of spearmanr: 0.8207826816681233
    assert spearman(x, y) == pytest.approx(0.8207826817)
    assert spearman(x, x.exp()) == pytest.approx(1)
    assert pearson(x, -x) == pytest.approx(-1)


def test_scores_that_do_not_vary_or_are_not_numbers():
    x = torch.tensor([1.0, 2, 3])
    assert (pearson(torch.ones(3), x), spearman(torch.ones(3), x)) == (0, 0)
    assert math.isnan(pearson(torch.tensor([1.0, float("nan"), 2]), x))
    assert math.isnan(spearman(torch.tensor([1.0, float("nan"), 2]), x))


def test_large_scores_keep_their_digits():
    x = torch.arange(1000.0)
    assert pearson(1e4 + 1e-1 * x, x) == pytest.approx(1, abs=1e-6)
