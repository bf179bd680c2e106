"""A Llama model of a few hundred thousand parameters with a tokenizer, made on the spot: `python model.py FOLDER [LAYERS [HIDDEN]]`.

Needs torch, transformers and tokenizers, so it runs in the lab's interpreter. 4 heads and 2 KV heads: tensor parallelism of 2 divides them.
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
from pathlib import Path

SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
VOCABULARY = 384
HEAD = 32
"""The smallest head size that vLLM's CPU attention takes."""


def make(folder: Path, layers: int = 4, hidden: int = 64) -> None:
    """Writes configuration, tokenizer and random weights (bfloat16) into `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE(unk_token=SPECIAL[0]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(
        ["one node and another node make a cluster"] * 8,
        trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet),
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[3]
    ).save_pretrained(folder)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), *(int(number) for number in sys.argv[2:4]))
