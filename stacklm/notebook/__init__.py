"""What only notebooks use: source on the page, numbers for the prose, figures, checks.

Nothing outside this package imports matplotlib, ipywidgets or IPython.
"""

from stacklm.notebook import figures
from stacklm.notebook.checks import check
from stacklm.notebook.device import pick_device
from stacklm.notebook.display import glue, show
from stacklm.notebook.explorer import Dial, Explorer, explore
from stacklm.notebook.logits import (
    attention_logits,
    layer_logits,
    query_gradients,
    watch_logits,
)
from stacklm.notebook.toy import ToyLanguage, adamw_alone, train, untied

__all__ = [
    "Dial",
    "Explorer",
    "ToyLanguage",
    "adamw_alone",
    "attention_logits",
    "check",
    "explore",
    "figures",
    "glue",
    "layer_logits",
    "pick_device",
    "query_gradients",
    "show",
    "train",
    "untied",
    "watch_logits",
]
