"""The ink of the book's figures; their data comes from the chapters.

Every function takes numbers (lists, arrays or tensors), returns nothing and displays an
image. With ``ax=`` it draws there instead and displays nothing, which is how an
explorer's ``draw`` uses it. Alt text and caption are the author's, in the cell's
metadata.
"""

from stacklm.notebook.figures.clipping import head_logits
from stacklm.notebook.figures.curves import u_curve
from stacklm.notebook.figures.plots import bars, lines
from stacklm.notebook.figures.roof import roofline
from stacklm.notebook.figures.sharding import timeline
from stacklm.notebook.figures.spectra import iterates, spectra, trace

__all__ = [
    "bars",
    "head_logits",
    "iterates",
    "lines",
    "roofline",
    "spectra",
    "timeline",
    "trace",
    "u_curve",
]
