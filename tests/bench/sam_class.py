"""A SAM class as people write it, for `--peer`."""

SOURCE = """
import torch

class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        parameters = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            self.state[p]["e"] = p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12))
            p.add_(self.state[p]["e"])
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["e"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

class Broken(SAM):
    def second_step(self, zero_grad=False):
        raise RuntimeError("the second step\\nfails")

class Unfinished:
    def first_step(self):
        pass

number = 3
"""
