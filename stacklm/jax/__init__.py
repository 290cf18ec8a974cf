"""The JAX edition: Muon under GSPMD, leaf by leaf or stacked.

config.py      what can be set
routing.py     which leaf goes where
newton_schulz.py, sharding.py   one iteration per stack, and where the stack lives
build.py       both optimizers as one optax transformation, and its state
checkpoint.py  orbax
hlo.py         what a compiled program exchanges; compiled.py compiles the update
model.py       Stack-100M as a function of a tree
parity.py      do they train alike: python -m stacklm.jax.parity

Needs the extra: ``pip install "stacklm[jax]"``. Nothing else in the package imports it.
"""

try:
    import jax as _jax
    import optax as _optax
    import orbax.checkpoint as _orbax
except ImportError as error:
    raise ImportError(
        f"stacklm.jax needs jax, optax and orbax-checkpoint ({error}); install them "
        'with: pip install "stacklm[jax]"'
    ) from None

from stacklm.jax.build import build_optimizers, init_state, state_shardings
from stacklm.jax.checkpoint import restore_checkpoint, save_checkpoint
from stacklm.jax.compiled import compile_update, count_update
from stacklm.jax.config import MuonConfig
from stacklm.jax.hlo import Exchanges, count_exchanges, format_exchanges
from stacklm.jax.model import forward, from_torch, token_loss
from stacklm.jax.newton_schulz import orthogonalize_stack
from stacklm.jax.routing import audit

__all__ = [
    "Exchanges",
    "MuonConfig",
    "audit",
    "build_optimizers",
    "compile_update",
    "count_exchanges",
    "count_update",
    "format_exchanges",
    "forward",
    "from_torch",
    "init_state",
    "orthogonalize_stack",
    "restore_checkpoint",
    "save_checkpoint",
    "state_shardings",
    "token_loss",
]

del _jax, _optax, _orbax
