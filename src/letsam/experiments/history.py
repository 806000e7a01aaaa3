"""Where the parts of a run were trained: a run that goes on after a change of versions or machine is of several."""

from __future__ import annotations

from typing import Any

Part = dict[str, Any]
"""{"first_epoch": …, "environment": {…}}"""


def gone_on(history: list[Part], environment: dict[str, Any], epochs: int) -> str:
    """Add an environment, if it is another one, from the epoch after so many on; what differs from the last, in words.

    An epoch that is in between counts for the environment that ends it.
    """
    before = history[-1]["environment"] if history else {}
    if before == environment:
        return ""
    history.append({"first_epoch": epochs + 1, "environment": environment})
    keys = [key for key in before.keys() | environment.keys() if before.get(key) != environment.get(key)]
    return ", ".join(f"{key} {before.get(key)} → {environment.get(key)}" for key in sorted(keys)) if before else ""
