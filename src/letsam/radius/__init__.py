"""How far: the radius ρ of a step, constant, scheduled, or learned."""

from .constant import ConstantRadius
from .learned import LearnedRadius
from .random_walk import RandomWalkRadius
from .schedule import LossEquatedRadius, ProportionalRadius, ScheduledRadius

Radius = ConstantRadius | ScheduledRadius | ProportionalRadius | LossEquatedRadius | LearnedRadius | RandomWalkRadius

__all__ = [
    "ConstantRadius",
    "LearnedRadius",
    "LossEquatedRadius",
    "ProportionalRadius",
    "Radius",
    "RandomWalkRadius",
    "ScheduledRadius",
]
