"""The model: Stack-100M and the parts it is made of."""

from stacklm.model.attention import (
    Attention,
    RMSNorm,
    apply_rope,
    attend,
    causal_mask,
    document_mask,
    rope_tables,
)
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
    "RMSNorm",
    "Stack100M",
    "SwiGLU",
    "apply_rope",
    "attend",
    "causal_mask",
    "document_mask",
    "rope_tables",
    "token_loss",
]
