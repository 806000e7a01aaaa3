"""How flat a minimum is: sharpness, the Hessian's top eigenvalue and trace, loss landscapes.

Everything here looks at a model and leaves it as it was: weights, BatchNorm statistics, `.grad`, train or eval mode and
the random state are those of before, also when something raises. One process, no sharded models.
"""

from . import figures
from .hessian import Eigenpair, Trace, top_eigenvalue, trace
from .landscape import Surface, directions, load_surface, surface
from .objective import Objective
from .sharpness import Sharpness, m_sharpness, n_sharpness

__all__ = [
    "Eigenpair",
    "Objective",
    "Sharpness",
    "Surface",
    "Trace",
    "directions",
    "figures",
    "load_surface",
    "m_sharpness",
    "n_sharpness",
    "surface",
    "top_eigenvalue",
    "trace",
]
