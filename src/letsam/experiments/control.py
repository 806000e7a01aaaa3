"""Radii that no method has by default, as recipes write them.

Two controls, paths that no signal has shaped: `options = { radius = { rule = "growth", rho = 0.02, final = 1.0,
by = 0.6 } }` grows exponentially and is there by 60 % of the training; `rule = "random-walk"` takes the fields of
`RandomWalkRadius`. And `rule = "matched"`, with those of `MatchedRadius`.
"""

from __future__ import annotations

from typing import Any

import letsam


def control(settings: Any, total_steps: int, seed: int) -> letsam.radius.Radius:
    """The radius of a run of so many steps; ValueError with one line if the settings make none."""
    if not isinstance(settings, dict):
        raise ValueError(f"radius is {settings!r}; give a table, {{ rule = … }}, or the number as rho")
    given = dict(settings)
    rule = given.pop("rule", None)
    try:
        if rule == "growth":
            return letsam.ScheduledRadius(steps=max(1, round(given.pop("by") * total_steps)), **given)
        if rule == "random-walk":
            return letsam.RandomWalkRadius(seed=seed, **given)
        if rule == "matched":
            return letsam.MatchedRadius(**given)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the radius with rule {rule!r} cannot be made: {error}") from None
    raise ValueError(f"the rule of a radius is {rule!r}; choose from growth, random-walk, matched")
