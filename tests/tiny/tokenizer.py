"""A byte-level BPE vocabulary for tiny models: 256 bytes, three specials, a few merges.

Any text can be tokenized and any token sequence detokenized to bytes. Knows no model.
"""

import string

import gguf

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, IM_START, EOS = 256, 257, 258
MIN_VOCAB = 256 + len(SPECIALS)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_symbols() -> list[str]:
    """The 256 printable stand-ins of GPT-2's byte-level BPE, index = byte value."""
    printable = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def merges(count: int) -> list[tuple[str, str]]:
    """The first `count` pairs of letters, in a fixed order; each makes one token."""
    pairs = [(a, b) for b in string.ascii_lowercase for a in "etaoinshr"]
    if count > len(pairs):
        raise ValueError(f"n_vocab is limited to {MIN_VOCAB + len(pairs)}: {count} merges asked for")
    return pairs[:count]


def tokens(n_vocab: int) -> list[str]:
    """Token texts in id order: bytes 0..255, SPECIALS, merged pairs."""
    if n_vocab < MIN_VOCAB:
        raise ValueError(
            f"n_vocab {n_vocab} is too small for 256 bytes and {len(SPECIALS)} specials: at least {MIN_VOCAB}"
        )
    return byte_symbols() + list(SPECIALS) + [a + b for a, b in merges(n_vocab - MIN_VOCAB)]


def add_tokenizer(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Write vocabulary, merges, special ids and the chat template (ChatML) into `writer`."""
    texts = tokens(n_vocab)
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types([control if text in SPECIALS else normal for text in texts])
    # llama.cpp refuses an empty list, so a vocabulary without merged tokens gets one rule that never yields a token
    writer.add_token_merges([f"{a} {b}" for a, b in merges(max(1, n_vocab - MIN_VOCAB))])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(BOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
