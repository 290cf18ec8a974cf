"""stacklm: the optimizer and the schedule of a 100M-parameter language model.

Import from the parts: ``stacklm.config``, ``stacklm.model`` and ``stacklm.optim``;
chapters also use ``stacklm.notebook``. ``import stacklm`` itself loads nothing heavy.
"""

__version__ = "0.1.0"
