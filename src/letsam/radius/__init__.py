"""How far: the radius ρ of a step, constant, scheduled, or learned."""

from .constant import ConstantRadius
from .learned import LearnedRadius
from .matched import MatchedRadius
from .random_walk import RandomWalkRadius
from .schedule import LossEquatedRadius, ProportionalRadius, ScheduledRadius

Learning = LearnedRadius | MatchedRadius
"""Those that need validation batches."""
Radius = ConstantRadius | ScheduledRadius | ProportionalRadius | LossEquatedRadius | RandomWalkRadius | Learning

__all__ = [
    "ConstantRadius",
    "LearnedRadius",
    "Learning",
    "LossEquatedRadius",
    "MatchedRadius",
    "ProportionalRadius",
    "Radius",
    "RandomWalkRadius",
    "ScheduledRadius",
]
