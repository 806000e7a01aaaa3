"""Small files in the format of GLUE's, and small checkpoints with tokenizers, made here: nothing is downloaded.

A sentence of class 1 has the word "good"; of two sentences, class 1 says it in both or in none.
"""

import random
from pathlib import Path

from letsam.experiments.data import glue, sentences
from letsam.experiments.data.glue import GLUE

WORDS = ["the", "dog", "cat", "runs", "sleeps", "here", "there", "and", '"', "quoted"]
MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
HEADERS = {
    "cola": ["source", "label", "star", "sentence"],
    "sst2": ["sentence", "label"],
    "mrpc": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    "stsb": [
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    ],
    "qqp": ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
    "mnli": f"{MNLI} sentence1 sentence2 label1 gold_label".split(),
    "qnli": ["index", "question", "sentence", "label"],
    "rte": ["index", "sentence1", "sentence2", "label"],
}
MNLI_DEV = f"{MNLI} sentence1 sentence2 label1 label2 label3 label4 label5 gold_label".split()


def examples(name, n, seed=0, longest=6):
    """[(sentences, label as in the files)]"""
    draw, corpus, found = random.Random(f"{name}{seed}"), GLUE[name], []
    for i in range(n):
        texts, good = [], []
        for _ in corpus.sentences:
            words = [draw.choice(WORDS) for _ in range(draw.randint(2, longest))]
            good.append(draw.random() < 0.5)
            texts.append(" ".join([*words, "good"] if good[-1] else words))
        right = good[0] == good[-1] if len(good) > 1 else good[0]
        number = i % 3 if len(corpus.classes) == 3 else int(right)
        label = corpus.classes[number] if corpus.classes else f"{5.0 * right - i % 3 * (2 * right - 1):.3f}"
        found.append((texts, label))
    return found


def lines_of(name, split, found):
    """The lines of a file: columns that nobody reads have x in them."""
    header = MNLI_DEV if name == "mnli" and split != "train" else HEADERS[name]
    corpus = GLUE[name]
    lines = [] if name == "cola" else ["\t".join(header)]
    for texts, label in found:
        values = dict.fromkeys(header, "x") | dict(zip(corpus.sentences, texts, strict=True)) | {corpus.label: label}
        lines.append("\t".join(values[column] for column in header))
    return lines


def write_task(root, name, n=12, dev=6):
    """The folder of a task; MRPC's files begin with a byte order mark, as its own do."""
    folder = Path(root) / GLUE[name].folder
    folder.mkdir(parents=True, exist_ok=True)
    for i, (split, file) in enumerate(GLUE[name].files.items()):
        lines = lines_of(name, split, examples(name, n if split == "train" else dev, seed=i))
        mark = "\ufeff" if name == "mrpc" else ""
        (folder / file).write_text(mark + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


def small_sets(root, name, n=12, dev=6):
    """(training set, development set) through the real code."""
    found = glue.read(GLUE[name], write_task(root, name, n, dev)).examples
    parts = {split: sentences.of(GLUE[name], part) for split, part in found.items()}
    return parts["train"], sentences.of(GLUE[name], found["dev"], parts.get("mismatched"))


def save_tokenizer(folder, longest=64, pad=True):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {word: i for i, word in enumerate([*special, "good", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"} | ({"pad_token": "[PAD]"} if pad else {})
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=longest, model_input_names=inputs, **names
    ).save_pretrained(folder)
    return len(vocabulary)


def save_encoder(folder, kind, pad=True, **settings):
    """A small encoder of a kind of transformers, Bert or Roberta, with random weights that are always the same."""
    import torch
    import transformers

    vocabulary = save_tokenizer(folder, pad=pad)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=vocabulary, **settings)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return str(folder)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def save_deberta(folder, dropout=0.0):
    """DeBERTa's architecture as the base has it, but for the size."""
    return save_encoder(
        folder,
        "Deberta",
        **SMALL,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=64,
        type_vocab_size=0,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["c2p", "p2c"],
        pooler_dropout=0,
        pooler_hidden_size=16,
    )


def save_bert(folder):
    return save_encoder(folder, "Bert", **SMALL, max_position_embeddings=64)


def save_mpnet(folder):
    return save_encoder(folder, "MPNet", **SMALL, max_position_embeddings=66, pad_token_id=0, initializer_range=0.5)


def save_gpt2(folder, pad=True):
    """A decoder, whose attention must not look ahead."""
    return save_encoder(
        folder, "GPT2", pad, n_positions=64, n_embd=16, n_layer=2, n_head=2, pad_token_id=0, bos_token_id=1
    )
