"""The model: Stack-100M, the parts it is made of, and how large its logits get."""

from stacklm.model.attention import (
    Attention,
    RMSNorm,
    apply_rope,
    rope_tables,
)
from stacklm.model.records import (
    LogitRecord,
    exact_maxima,
    logit_bound,
    norm_bound,
)
from stacklm.model.scores import attend, causal_mask, document_mask
from stacklm.model.transformer import (
    IGNORE_INDEX,
    Block,
    Stack100M,
    SwiGLU,
    token_loss,
)

__all__ = [
    "IGNORE_INDEX",
    "Attention",
    "Block",
    "LogitRecord",
    "RMSNorm",
    "Stack100M",
    "SwiGLU",
    "apply_rope",
    "attend",
    "causal_mask",
    "document_mask",
    "exact_maxima",
    "logit_bound",
    "norm_bound",
    "rope_tables",
    "token_loss",
]
