"""How good are the estimates of the hyper-gradient? Each against the exact one, step by step, on the digits.

    PYTHONPATH=src python benchmarks/estimators.py --out results/estimators.json

A small CNN with BatchNorm on 1,000 digits, 40 % wrong labels, SAM at ρ = 0.05, SGD with momentum 0.9 at lr 0.03; the
objective is the paper's squared gap, with validation batches from a held-out fifth. At every step the same state is
copied, one copy an estimator, and each copy makes one learning step with lr 0; the run itself goes on with plain SAM.
`sign`: share of steps on which the sign is that of the exact derivative; `correlation` with it over the steps; `size`:
median ratio of the absolute values. `follows_gap`: share of steps on which dU/dν has the sign of L_vl − L_tr.
"""

import argparse
import copy
import json
import platform
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import letsam
from letsam.experiments.data import digits
from letsam.experiments.models.small_cnn import small_cnn

ESTIMATORS = ("exact", "algorithm1", "appendix", "finite-difference")


def measure(steps: int, seed: int) -> dict[str, dict[str, float]]:
    """Hyper-gradients of `steps` steps by every estimator, and what they have in common with the exact ones."""
    torch.manual_seed(seed)
    task = digits.task(seed, 0.4)
    model = small_cnn()
    base = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    opt = letsam.create("sam", base, model=model)
    found: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    gaps = []
    for _ in range(steps):
        chosen, held = torch.randint(0, 800, (50,)), torch.randint(800, 1000, (50,))
        for name in ESTIMATORS:
            twin, other = copy.deepcopy((model, opt))
            other.radius = letsam.LearnedRadius(initial=0.05, estimator=name, lr=0.0)
            other.param_groups[0].update({f"sam_{k}": torch.tensor(v) for k, v in other.radius.scalars().items()})
            closure, val_closure = (
                letsam.closure(twin, cross_entropy, (task.train_x[i], task.train_y[i])) for i in (chosen, held)
            )
            other.step(closure, val_closure)
            found[name].append(other.last.hyper_gradient or 0.0)
            if name == "exact":
                gaps.append((other.last.val_loss or 0.0) - float(closure()))
        opt.step(letsam.closure(model, cross_entropy, (task.train_x[chosen], task.train_y[chosen])))
    exact, gap = torch.tensor(found["exact"]), torch.tensor(gaps)
    return {name: agreement(torch.tensor(values), exact, gap) for name, values in found.items()}


def agreement(values: torch.Tensor, exact: torch.Tensor, gap: torch.Tensor) -> dict[str, float]:
    """Sign, correlation and size against the exact hyper-gradient."""
    return {
        "sign": (values.sign() == exact.sign()).float().mean().item(),
        "correlation": torch.corrcoef(torch.stack([values, exact]))[0, 1].item(),
        "size": (values / exact).abs().median().item(),
        "follows_gap": (values.sign() == gap.sign()).float().mean().item(),
    }


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    record = {
        "command": f"benchmarks/estimators.py --steps {args.steps} --seed {args.seed}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "letsam": letsam.__version__,
        "device": "cpu",
        "estimators": measure(args.steps, args.seed),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["estimators"], indent=1))


if __name__ == "__main__":
    main()
