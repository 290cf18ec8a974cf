"""What only notebooks use: source on the page, numbers for the prose, figures, checks.

Nothing outside this package imports matplotlib, ipywidgets or IPython.
"""

from stacklm.notebook import figures
from stacklm.notebook.checks import check
from stacklm.notebook.device import pick_device
from stacklm.notebook.display import glue, show
from stacklm.notebook.explorer import Dial, Explorer, explore
from stacklm.notebook.logbook import ship_log
from stacklm.notebook.logits import (
    attention_logits,
    layer_logits,
    query_gradients,
    watch_logits,
)
from stacklm.notebook.toy import ToyLanguage, adamw_alone, train, untied
from stacklm.notebook.updates import (
    block_matrices,
    narrow_toy,
    rms,
    spectral_excess,
    watch_updates,
)

__all__ = [
    "Dial",
    "Explorer",
    "ToyLanguage",
    "adamw_alone",
    "attention_logits",
    "block_matrices",
    "check",
    "explore",
    "figures",
    "glue",
    "layer_logits",
    "narrow_toy",
    "pick_device",
    "query_gradients",
    "rms",
    "ship_log",
    "show",
    "spectral_excess",
    "train",
    "untied",
    "watch_logits",
    "watch_updates",
]
