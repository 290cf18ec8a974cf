"""Stack-100M: a decoder-only transformer, from token ids to logits and loss.

The one formula, for every block::

    x <- x + attn(norm1(x)),    x <- x + mlp(norm2(x))

Legend: B sequences of T tokens, V = vocab_size, d = d_model, f = intermediate,
L = n_layers. Logits are in nats, the loss in nats per token.
Sources: pre-norm blocks, Radford et al. 2019 (GPT-2); SwiGLU, Shazeer 2020
(arXiv:2002.05202, equation 6); tied head, Press & Wolf 2017 (arXiv:1608.05859).
Taught in chapters 01 and 11.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from stacklm.config import StackConfig
from stacklm.model.attention import Attention, RMSNorm, rope_tables
from stacklm.model.records import check_record
from stacklm.model.scores import document_mask, working_dtype

IGNORE_INDEX = -100
"""Target that carries no loss, as in torch.nn.functional.cross_entropy."""

INIT_STD = 0.02
"""Standard deviation of initial matrices (Radford et al. 2018, GPT)."""


class SwiGLU(nn.Module):
    """The MLP: w_down(silu(w_gate x) * w_up x).

    Args:
        cfg: the model's shape.

    References:
        Shazeer 2020, arXiv:2002.05202, equation 6.
    """

    def __init__(self, cfg: StackConfig):
        super().__init__()
        self.w_gate = nn.Linear(cfg.d_model, cfg.intermediate, bias=False)
        self.w_up = nn.Linear(cfg.d_model, cfg.intermediate, bias=False)
        self.w_down = nn.Linear(cfg.intermediate, cfg.d_model, bias=False)

    def forward(self, x):
        """Map each token by itself: (B, T, d) to (B, T, d)."""
        hidden = F.silu(self.w_gate(x)) * self.w_up(x)  # (B, T, f)
        return self.w_down(hidden)  # (B, T, d)


class Block(nn.Module):
    """One layer: attention, then the MLP, each behind a norm.

    Args:
        cfg: the model's shape.
        layer_idx: which block this is, from 0.
    """

    def __init__(self, cfg: StackConfig, layer_idx: int = 0):
        super().__init__()
        self.norm1 = RMSNorm((cfg.d_model,), cfg.norm_eps)
        self.attn = Attention(cfg, layer_idx)
        self.norm2 = RMSNorm((cfg.d_model,), cfg.norm_eps)
        self.mlp = SwiGLU(cfg)

    def forward(self, x, rope, mask=None, record=None, record_exact=None):
        """Add both parts to x; arguments as for `Attention.forward`."""
        mixed = self.attn(self.norm1(x), rope, mask, record, record_exact)
        x = x + mixed  # (B, T, d)
        return x + self.mlp(self.norm2(x))  # (B, T, d)


def token_loss(logits, targets):
    """Average the cross-entropy over the targets that count.

    Args:
        logits: (B, T, V).
        targets: the right next token of every position, (B, T) integers;
            -100 marks a position without loss.

    Returns:
        A scalar in at least float32 (nats per token). If no position
        counts, it is 0 with gradient 0: a micro-batch of padding must not
        turn the step into NaN.
    """
    wide = logits.to(working_dtype(logits.dtype))
    wide, labels = wide.flatten(0, 1), targets.flatten().long()  # (B * T)
    total = F.cross_entropy(wide, labels, reduction="sum")  # skips -100
    return total / (labels != IGNORE_INDEX).sum().clamp(min=1)


class Stack100M(nn.Module):
    """The language model; with ``StackConfig()``, 101,353,728 parameters.

    Build it under ``torch.device("meta")`` to look at its parameters
    without memory. To fill such a model in, call ``to_empty(device=...)``
    and then ``reset_parameters()``.

    Args:
        cfg: the model's shape.

    Example:
        >>> from stacklm.config import toy_config
        >>> model = Stack100M(toy_config())
        >>> logits, loss = model(torch.zeros(1, 8, dtype=torch.long))
        >>> tuple(logits.shape), loss
        ((1, 8, 256), None)
    """

    def __init__(self, cfg: StackConfig):
        super().__init__()
        self.cfg = cfg
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.d_model)
        blocks = (Block(cfg, i) for i in range(cfg.n_layers))
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = RMSNorm((cfg.d_model,), cfg.norm_eps)
        if not cfg.tie_embeddings:
            shape = (cfg.d_model, cfg.vocab_size)
            self.lm_head = nn.Linear(*shape, bias=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        """Draw all weights from torch's global generator; set gains to 1.

        Matrices are normal with standard deviation 0.02. Those that write
        into the residual stream, wo and w_down, get 0.02 / sqrt(2 L): 2 L
        of them add up in it.

        References:
            Radford et al. 2018 (GPT), section 4.1, for 0.02; Radford et
            al. 2019 (GPT-2), section 2.3, for the residual scale.
        """
        for module in self.modules():
            if isinstance(module, RMSNorm):
                module.weight.fill_(1.0)
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                module.weight.normal_(std=INIT_STD)
        for block in self.blocks:
            for writer in (block.attn.wo, block.mlp.w_down):
                writer.weight.div_(math.sqrt(2 * self.cfg.n_layers))

    def forward(
        self,
        tokens,
        targets=None,
        seq_ids=None,
        record=None,
        record_exact=None,
    ):
        """Predict the next token of every position.

        Args:
            tokens: ids from 0 to vocab_size - 1, (B, T). Like targets and
                seq_ids, of int32 or int64.
            targets: right answers, (B, T); -100 where there is none, such
                as at the last token of a document. None means no loss.
            seq_ids: document of each token, (B, T) integers; tokens see
                only their own document. None means that each row is one
                document.
            record: a `LogitRecord`, or a dict {layer: (n_heads,) tensor},
                that keeps the largest attention logit of every head over
                all passes that are given it; None keeps none.
            record_exact: True for exact maxima, False for bounds by norms,
                which cost next to nothing; None lets every layer's
                attribute of that name decide.

        Returns:
            logits, (B, T, V), and the loss, a scalar in nats per token or
            None.

        Raises:
            TypeError: if a tensor is not int32 or int64, or the record is
                of another type.
            ValueError: if a shape does not fit, T exceeds max_seq_len, an
                id on the CPU is out of range, or the record is of another
                model or on another device.
        """
        _check_batch(self.cfg, tokens, targets, seq_ids)
        if record is not None:
            check_record(record, self.cfg, tokens.device)
        x = self.tok_emb(tokens)  # (B, T, d)
        rope = self._rope(x)
        mask = None if seq_ids is None else document_mask(seq_ids)
        for block in self.blocks:
            x = block(x, rope, mask, record, record_exact)
        logits = self._head(self.final_norm(x))  # (B, T, V)
        loss = None if targets is None else token_loss(logits, targets)
        return logits, loss

    def _rope(self, x):
        """Make RoPE's tables for x, (B, T, d), on its device.

        Made in each pass, not kept as buffers: ``model.bfloat16()`` would
        round a buffer, and ``to_empty`` would leave it without values.
        """
        cfg = self.cfg
        kind = {"device": x.device, "dtype": x.dtype}
        theta = cfg.rope_theta
        return rope_tables(x.shape[1], cfg.head_dim, theta=theta, **kind)

    def _head(self, x):
        """Map (B, T, d) to (B, T, V) by the embedding or lm_head."""
        if self.cfg.tie_embeddings:
            return F.linear(x, self.tok_emb.weight)
        return self.lm_head(x)


def _check_batch(cfg: StackConfig, tokens, targets, seq_ids):
    """Reject what the layers would take silently or explain badly."""
    for name, ids in (
        ("tokens", tokens),
        ("targets", targets),
        ("seq_ids", seq_ids),
    ):
        if ids is None and name != "tokens":
            continue
        dtype = getattr(ids, "dtype", type(ids).__name__)
        if dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"{name} must be an int32 or int64 tensor, got {dtype}; "
                f"convert with torch.as_tensor(...).long()"
            )
        if ids.shape != tokens.shape:
            raise ValueError(
                f"{name} must have the shape of tokens, "
                f"{tuple(tokens.shape)}, got {tuple(ids.shape)}; give one "
                f"entry per token"
            )
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise ValueError(
            f"tokens must be (B, T) with at least one token, got shape "
            f"{tuple(tokens.shape)}; add a batch dimension with tokens[None]"
        )
    if tokens.shape[1] > cfg.max_seq_len:
        raise ValueError(
            f"T must not exceed max_seq_len = {cfg.max_seq_len}, got "
            f"{tokens.shape[1]}; cut the sequences or raise max_seq_len"
        )
    _check_range("tokens", tokens, cfg.vocab_size)
    if targets is not None:
        _check_range("targets", targets, cfg.vocab_size, allowed=IGNORE_INDEX)


def _check_range(name: str, ids, vocab_size: int, allowed: int = 0):
    """Reject ids outside the vocabulary, other than `allowed`.

    Only where looking is cheap: a GPU would wait, and a compiled graph
    would break.
    """
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    outside = ids[((ids < 0) | (ids >= vocab_size)) & (ids != allowed)]
    if outside.numel():
        raise ValueError(
            f"{name} must lie in 0 … {vocab_size - 1}, got {int(outside[0])}; "
            f"check the tokenizer against vocab_size"
        )
