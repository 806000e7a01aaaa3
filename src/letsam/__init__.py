"""Sharpness-aware training without a radius to tune."""

from .closures import closure
from .combiners import Mix, Perturbed, Reuse, SurrogateGap
from .data import cycle, split
from .methods import create, describe, list_methods
from .optimizer import SharpnessAware
from .perturbations import L2, Adaptive, Friendly, Masked, Random
from .policies import Always, Bernoulli, EveryK, GradientNorm, Never
from .radius import (
    ConstantRadius,
    LearnedRadius,
    LossEquatedRadius,
    MatchedRadius,
    ProportionalRadius,
    RandomWalkRadius,
    ScheduledRadius,
)

__version__ = "0.1.0"

__all__ = [
    "L2",
    "Adaptive",
    "Always",
    "Bernoulli",
    "ConstantRadius",
    "EveryK",
    "Friendly",
    "GradientNorm",
    "LearnedRadius",
    "LossEquatedRadius",
    "Masked",
    "MatchedRadius",
    "Mix",
    "Never",
    "Perturbed",
    "ProportionalRadius",
    "Random",
    "RandomWalkRadius",
    "Reuse",
    "ScheduledRadius",
    "SharpnessAware",
    "SurrogateGap",
    "closure",
    "create",
    "cycle",
    "describe",
    "list_methods",
    "split",
]
