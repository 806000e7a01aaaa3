"""Sharpness-aware steps in Hugging Face's Trainer: same arguments, and the name of a method.

    trainer = SharpnessAwareTrainer(model, args, train_dataset=data, method="sam", method_options={"rho": 0.05})
    trainer.train()

`SharpnessAwareMixin` does the same for other trainers: class Mine(SharpnessAwareMixin, Seq2SeqTrainer).
"""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError("transformers is not installed: pip install 'letsam[transformers]'") from error

from .trainer import SharpnessAwareMixin, SharpnessAwareTrainer

__all__ = ["SharpnessAwareMixin", "SharpnessAwareTrainer"]
