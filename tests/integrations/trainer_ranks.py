"""One of two processes, started by test_trainer_ddp.py: trains, and writes what it has to the folder given."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tiny import causal, sentences, trainer

SETTINGS = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "train_sampling_strategy": "sequential"}


def main(folder, *methods):
    for method in methods:
        free = {"method_options": {"every": 1, "gated": False, "bounds": (1e-5, 1.0)}}
        more = {"radius_dataset": sentences(8, seed=1), **free} if method.startswith("auto") else {}
        made = trainer(folder, method, causal(), train=sentences(16), arguments_=SETTINGS, **more)
        made.train()
        group = made.sharpness_aware.param_groups[0]
        result = {"weights": made.model.state_dict(), "rho": group["sam_rho"], "norm": group["sam_perturbation_norm"]}
        torch.save(result, folder / f"{method}-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
