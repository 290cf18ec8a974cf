"""Find a model's attention layers by what they have, not by their class.

So the optimizer's side can work on the model without importing it, and both find the
same layers, also inside DDP and torch.compile.
"""

NEEDED = (
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "wq",
    "wk",
    "q_norm",
    "k_norm",
    "layer_idx",
)
"""What a layer must have; the names are fixed (see `stacklm.model.Attention`)."""


def attention_layers(model, caller: str) -> list:
    """List the attention layers of `model` in order of their layer_idx.

    Args:
        model: a module that holds them, at any depth.
        caller: the name that errors begin with.

    Raises:
        TypeError: if `model` is no module or has no such layer.
        ValueError: if the layers are not numbered 0, 1, 2, …, or differ in n_heads.
    """
    modules = model.modules() if hasattr(model, "modules") else ()
    matching = (m for m in modules if all(hasattr(m, name) for name in NEEDED))
    # Wrappers, as of torch.compile, show what they wrap as their own: one per wq.
    found = list({id(m.wq): m for m in matching}.values())
    if not found:
        raise TypeError(
            f"{caller} takes a model with attention layers as in Stack100M, got "
            f"{type(model).__name__}; a layer needs {', '.join(NEEDED)}"
        )
    found.sort(key=lambda layer: layer.layer_idx)
    numbers = [layer.layer_idx for layer in found]
    if numbers != list(range(len(found))):
        raise ValueError(
            f"{caller} needs layers numbered from 0 without gaps, got layer_idx "
            f"{numbers}; pass the whole model, and number its layers as they run"
        )
    heads = {layer.n_heads for layer in found}
    if len(heads) > 1:
        raise ValueError(
            f"{caller} needs the same n_heads in every layer, got {sorted(heads)}; "
            f"(n_layers, n_heads) is one table"
        )
    return found
