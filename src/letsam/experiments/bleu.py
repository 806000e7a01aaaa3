"""BLEU by sacrebleu, in the two ways that tables report it; the signatures say what exactly was done.

`bleu` is sacrebleu's own: its tokenisation 13a, case kept. `tokenised_bleu` is on lower-cased tokens, as papers about
these sets report it: IWSLT'14 has come tokenised (by Moses) and lower-cased already, so that its tokens are what stands
between spaces, as in fairseq's and multi-bleu's scores; Multi30k is raw text, and 13a cuts it. Compounds are not split
at hyphens, and nothing is detokenised: `bleu` of IWSLT'14 is on text with spaces around its punctuation.
"""

from __future__ import annotations

from collections.abc import Sequence

TOKENISED = ("iwslt14",)
"""Sets that come as tokens with spaces between them."""


def score(data: str, translations: Sequence[str], references: Sequence[str]) -> tuple[dict[str, float], dict[str, str]]:
    """({bleu, tokenised_bleu} from 0 to 100, the signature of each)."""
    from sacrebleu.metrics.bleu import BLEU

    tokens = "none" if data in TOKENISED else "13a"
    ways = {"bleu": BLEU(), "tokenised_bleu": BLEU(lowercase=True, tokenize=tokens, force=True)}
    scores = {name: way.corpus_score(list(translations), [list(references)]).score for name, way in ways.items()}
    return scores, {name: str(way.get_signature()) for name, way in ways.items()}
