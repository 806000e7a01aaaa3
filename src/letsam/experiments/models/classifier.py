"""A pretrained checkpoint with a classifier of sentences on it, by `transformers`.

A checkpoint is the name of a model of the Hugging Face hub or a folder. It is looked for in $LETSAM_CHECKPOINTS first,
by its whole name or the last part of it, so that a recipe names no folder of a machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import digest

CHECKPOINTS = "LETSAM_CHECKPOINTS"
MASK = "attention_mask"
READY: dict[str, Callable[[Tensor], Tensor]] = {
    "boolean": lambda mask: mask.bool(),
    "additive": lambda mask: (1.0 - mask) * torch.finfo(torch.float32).min,
}
"""The ready-made masks that models of transformers understand: one kind, the other, or neither."""
POOLER = "pooler"
"""The layer of an encoder that pretraining may leave out, and fine-tuning then draws anew."""
log = logging.getLogger("letsam")
_digests: dict[tuple[tuple[str, int, int], ...], str] = {}


class Classifier(nn.Module):
    """Takes the inputs in the order of `names`, returns logits; of one class the scores, (rows,).

    Given a mask (rows, length), the models of transformers look at its values to find out whether they can do without,
    and the host waits for the device. Those that take it ready-made, (rows, 1, 1, length), do not look; `ready` names
    the kind that this one takes, and is empty if there is none.

    What a model makes without naming a device is made where the inputs are: MPNet of transformers 5.17, not of 5.22,
    makes its positions on the CPU and moves them, and the host waits for the device in every pass.
    """

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model: Any = model
        self.names, self.ready = names, ""

    def forward(self, *inputs: Tensor) -> Tensor:
        """The logits in the type of the pass."""
        named = dict(zip(self.names, inputs, strict=True))
        if self.ready:
            named[MASK] = READY[self.ready](named[MASK])[:, None, None, :]
        with nullcontext() if inputs[0].is_cpu else inputs[0].device:
            logits: Tensor = self.model(**named).logits
        return logits.squeeze(1) if logits.shape[1] == 1 else logits

    def check(self, checkpoint: str, largest: int, length: int) -> None:
        """ValueError if the weights have no row for a token or a position: on a GPU the process would be lost by it."""
        words = self.model.get_input_embeddings().num_embeddings
        if largest >= words:
            raise ValueError(
                f"the tokenizer of {checkpoint} says {largest}, and its weights know {words} tokens; get the "
                "checkpoint anew, they belong to two"
            )
        for name, layer in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(layer, nn.Embedding):
                # The models that number positions after the padding token lose those up to it.
                most = layer.num_embeddings - (0 if layer.padding_idx is None else layer.padding_idx + 1)
                if length > most:
                    raise ValueError(f"{checkpoint} reads {most} tokens, and rows have {length}; set length = {most}")

    @torch.no_grad()
    def try_ready(self, *inputs: Tensor) -> None:
        """Use ready-made masks if the model says the same with them; others of transformers would misunderstand."""
        was, self.ready = self.training, ""
        self.eval()
        plain = self(*inputs)
        self.ready = next((kind for kind in READY if self._agrees(kind, inputs, plain)), "")
        self.train(was)

    def _agrees(self, kind: str, inputs: tuple[Tensor, ...], plain: Tensor) -> bool:
        self.ready = kind
        try:
            return torch.allclose(self(*inputs), plain, rtol=1e-4, atol=1e-4)
        except (ValueError, RuntimeError, IndexError, TypeError):
            return False


def load_tokenizer(checkpoint: str) -> Any:
    """The tokenizer of a checkpoint; ValueError with one line if there is none, or it cannot fill rows up."""
    _loaded("AutoConfig", checkpoint)  # a tokenizer has many files, and each is asked for again and again
    tokenizer = _loaded("AutoTokenizer", checkpoint)
    if tokenizer.pad_token_id is None:
        raise ValueError(f"the tokenizer of {checkpoint} has no padding token; choose an encoder, such as DeBERTa")
    return tokenizer


def load_classifier(checkpoint: str, names: tuple[str, ...], classes: int, dropout: float | None) -> Classifier:
    """The checkpoint with a fresh head of so many classes, drawn from torch's random state; in float32."""
    model, info = _loaded(
        "AutoModelForSequenceClassification",
        checkpoint,
        num_labels=classes,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    _check_encoder(model.base_model_prefix, checkpoint, info)
    if dropout is not None:
        _set_dropout(model, checkpoint, dropout)
    return Classifier(model, names)


def encoder_digest(model: Classifier, checkpoint: str) -> str:
    """The digest of the encoder as it was loaded, made once for files that stay the same: every run of a table starts
    with it. Where a pooler may have been drawn, and for files that are the hub's, it is made anew."""
    folder, encoder = Path(place_of(checkpoint)), model.model.base_model
    files = [path for pattern in ("config.json", "*.safetensors", "*.bin") for path in sorted(folder.glob(pattern))]
    if not files or getattr(encoder, POOLER, None) is not None:
        return digest(encoder)
    stats = [path.stat() for path in files]
    key = tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in zip(files, stats, strict=True))
    if key not in _digests:
        _digests[key] = digest(encoder)
    return _digests[key]


def place_of(checkpoint: str) -> str:
    """Its folder in $LETSAM_CHECKPOINTS if it is there, else what was given."""
    if folder := os.environ.get(CHECKPOINTS):
        for name in (checkpoint, Path(checkpoint).name):
            if (Path(folder).expanduser() / name / "config.json").is_file():
                return str(Path(folder).expanduser() / name)
    return checkpoint


def _loaded(kind: str, checkpoint: str, **options: Any) -> Any:
    try:
        import transformers
        from huggingface_hub.utils import logging as hub_logging
    except ImportError:
        raise ValueError("sentences need transformers: pip install 'letsam[transformers]'") from None
    hub_logging.set_verbosity_error()  # every try of every file is a line
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return getattr(transformers, kind).from_pretrained(place_of(checkpoint), **options)
    except Exception as error:  # broken files raise what they like: the errors of safetensors and tokenizers are plain
        reason = " ".join(str(error).split())[:120]
        raise ValueError(
            f"the checkpoint {checkpoint!r} cannot be loaded ({reason}…); get it anew, give a model of the "
            f"Hugging Face hub or its folder, or put it into ${CHECKPOINTS}"
        ) from None


def _check_encoder(prefix: str, checkpoint: str, info: dict[str, Any]) -> None:
    """ValueError if weights of the encoder were not in the files and were drawn instead: only a head may be."""
    drawn = [*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])]
    inside = sorted(name for name in drawn if name.startswith(f"{prefix}."))
    lost = [name for name in inside if not name.startswith(f"{prefix}.{POOLER}.")]
    if lost:
        raise ValueError(
            f"the checkpoint {checkpoint!r} lacks {len(lost)} weights of its encoder, such as {lost[0]}, or has them "
            "in another size; get the checkpoint anew, or correct its config.json"
        )
    if inside:
        log.warning("%s: %d weights of its pooler are not in it and start at random", checkpoint, len(inside))


def _set_dropout(model: Any, checkpoint: str, share: float) -> None:
    """Of the layer directly before the classifier, the last one after the encoder: DeBERTa's pooler has its own."""
    inside = set(model.base_model.modules())
    layers = [m for m in model.modules() if isinstance(m, nn.Dropout) and m not in inside]
    if not layers:
        raise ValueError(f"the classifier of {checkpoint} has no dropout; leave the setting away")
    layers[-1].p = share
