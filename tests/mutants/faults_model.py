"""Faults of configuration, model, records and the step of training."""

from tests.mutants.faults import Fault

ATTENTION = "model/attention.py"
SCORES = "model/scores.py"
RECORDS = "model/records.py"
NETWORK = "model/transformer.py"
STEP = "train/step.py"

FAULTS = [
    Fault(
        "another width",
        "config.py",
        "intermediate: int = 1_408",
        "intermediate: int = 1_536",
    ),
    Fault(
        "decay steps rounded up",
        "config.py",
        "int(self.decay_frac * self.total_steps)",
        "-int(-self.decay_frac * self.total_steps // 1)",
    ),
    Fault(
        "steps cut off, not rounded",
        "config.py",
        "return round(tokens / self.tokens_per_step)",
        "return int(tokens // self.tokens_per_step)",
    ),
    Fault(
        "a run shorter than its phases",
        "config.py",
        "if self.stable_steps < 0:",
        "if False:",
    ),
    Fault(
        "gains of one norm per block",
        "_counts.py",
        "cfg.n_layers * (2 * d + qk_gains)",
        "cfg.n_layers * (d + qk_gains)",
    ),
    Fault(
        "attention without its causal half",
        "_counts.py",
        "3 * attention // 2",
        "3 * attention",
    ),
    Fault(
        "configuration accepts a bool",
        "_checks.py",
        "isinstance(value, bool)",
        "False and isinstance(value, bool)",
    ),
    Fault(
        "RoPE turns backwards for one half",
        ATTENTION,
        "second * cos + first * sin",
        "second * cos - first * sin",
    ),
    Fault(
        "keys are not turned",
        ATTENTION,
        "k = apply_rope(self.k_norm(k), *rope)",
        "k = self.k_norm(k)",
    ),
    Fault(
        "heads and tokens mixed",
        ATTENTION,
        "mixed.transpose(1, 2).flatten(2)",
        "mixed.flatten(1, 2).view(x.shape[0], x.shape[1], -1)",
    ),
    Fault("norm without eps", ATTENTION, "eps=self.eps)", "eps=0.0)"),
    Fault(
        "gains dropped",
        ATTENTION,
        "return (unit * self.weight).to(x.dtype)",
        "return unit.to(x.dtype)",
    ),
    Fault("causal mask looks ahead", SCORES, ".tril()", ".tril(1)"),
    Fault(
        "document mask dropped",
        SCORES,
        "(same & causal_mask(seq_ids.shape[1], seq_ids.device))",
        "(causal_mask(seq_ids.shape[1], seq_ids.device) | (same & False))",
    ),
    Fault(
        "query heads read other KV heads",
        SCORES,
        "k = k.repeat_interleave(groups, dim=1)",
        "k = k.repeat(1, groups, 1, 1)",
    ),
    Fault(
        "soft cap left out",
        SCORES,
        "capped = soft_cap * torch.tanh(scores / soft_cap)",
        "capped = scores",
    ),
    Fault(
        "logits divided by d",
        RECORDS,
        "amax(dim=0) / math.sqrt(width)",
        "amax(dim=0) / width",
    ),
    Fault(
        "bound by means",
        RECORDS,
        "x.amax(dim=(0, 2)) for x",
        "x.mean(dim=(0, 2)) for x",
    ),
    Fault(
        "records forget earlier passes",
        RECORDS,
        "row.copy_(torch.maximum(row, found))",
        "row.copy_(found)",
    ),
    Fault(
        "exact records ignore documents",
        RECORDS,
        "hidden = ~mask[..., start:stop, :stop]",
        "hidden = ~causal_mask(length, q.device)[..., start:stop, :stop]",
    ),
    Fault(
        "tier 0 without the square root",
        RECORDS,
        "* math.sqrt(attn.head_dim))",
        "* attn.head_dim)",
    ),
    Fault(
        "the other layer's record",
        ATTENTION,
        "measure(record, self.layer_idx, q",
        "measure(record, 0, q",
    ),
    Fault(
        "no residual",
        NETWORK,
        "return x + self.mlp(self.norm2(x))",
        "return self.mlp(self.norm2(x))",
    ),
    Fault("gate without SiLU", NETWORK, "F.silu(self.w_gate(x))", "self.w_gate(x)"),
    Fault(
        "loss over padding",
        NETWORK,
        "total / (labels != IGNORE_INDEX).sum().clamp(min=1)",
        "total / labels.numel()",
    ),
    Fault(
        "residual writers as large as all",
        NETWORK,
        "math.sqrt(2 * self.cfg.n_layers)",
        "1.0",
    ),
    Fault("sum for mean over micro-batches", STEP, "* count / total\n", "* count\n"),
    Fault("mean of means", STEP, "* count / total\n", "/ len(batches)\n"),
    Fault(
        "last micro-batch's loss as the mean",
        STEP,
        "mean = mean + share.detach()",
        "mean = share.detach() * total / count",
    ),
    Fault(
        "guard removed",
        STEP,
        "finite = math.isfinite(loss) and math.isfinite(norm) and top < math.inf",
        "finite = True",
    ),
    Fault(
        "clip to the square",
        STEP,
        "for g in gradients], limit / norm)",
        "for g in gradients], (limit / norm) ** 2)",
    ),
    Fault(
        "gradients of the last step stay",
        STEP,
        "    _forget_gradients(params)\n    record",
        "    record",
    ),
    Fault("QK-clip never fires", STEP, "if top > cfg.qk_clip_tau:", "if False:"),
    Fault(
        "one rate written over both",
        STEP,
        "_set_rates(optimizer, own)",
        "_set_rates(optimizer, rates[0][1][:1] * len(own))",
    ),
]
