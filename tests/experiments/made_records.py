"""Records of runs that nobody has trained, whole as the command leaves them."""

from dataclasses import asdict

from letsam.experiments.plan import machine
from letsam.experiments.records import FORMAT, RUN, metric


def run_record(training, seconds, device="cpu", processor=None):
    """seconds: of each epoch, with its test. A CPU is this one unless another processor is named."""
    where = machine(device) if processor is None else (device, processor)
    environment = dict(zip(("device", "processor"), where, strict=False))
    rows = [
        {"epoch": i, "train_loss": 1.0, "rho": None, "lr": 0.1, "passes": 1.0, "skipped": 0, "seconds": x}
        | {"seconds_with_test": x, "test_accuracy": 0.5}
        for i, x in enumerate(seconds, 1)
    ]
    facts = {"identity": training.identity, "training": asdict(training), "environment": environment}
    result = {metric(training.data): 0.5, "train_loss": 1.0, "rho": None}
    return {"kind": RUN, "format": FORMAT, **facts, "seconds": sum(seconds), "result": result, "rows": rows}
