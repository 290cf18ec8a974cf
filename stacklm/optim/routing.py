"""Which optimizer for which parameter: an audit of any model, and its table.

Muon takes the hidden matrices. Embeddings, output heads, gains, biases and whatever
is no matrix go to AdamW. What cannot be told is an error that lists every such
parameter and how to say what is wanted. Shapes are those of ``torch.nn``: a Linear
weight is (out, in). Source: Jordan 2024, the section on what Muon is for; the rules
themselves are in ``kinds.py`` and ``linears.py``. Taught in chapter 01.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from textwrap import wrap

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from stacklm.optim.checks import check_muon_parameter
from stacklm.optim.kinds import classify
from stacklm.optim.sighting import Sighting, Verdict

# Parts that DDP, torch.compile, FSDP and checkpointing put into names.
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
FREEZE = "freeze it with requires_grad_(False)"
# Columns of the table, if names leave the reason this many of them.
WIDTH, REASON = 78, 16
TITLES = {"muon": "Muon", "adamw": "AdamW", "frozen": "frozen"}


@dataclass(frozen=True)
class Route:
    """Where one parameter goes, and why.

    Attributes:
        name: Its name in the model, the first one if it is tied.
        shape: Its shape.
        numel: Its number of elements.
        optimizer: "muon", "adamw", or "frozen" for one that takes no gradient.
        reason: Why, in a few words.
        decay: Whether AdamW applies weight decay; not to gains, biases and vectors.
        stacked: Whether Muon takes it as a stack of matrices (E, m, n).
        aliases: Its other names.
    """

    name: str
    shape: tuple[int, ...]
    numel: int
    optimizer: str
    reason: str
    decay: bool = True
    stacked: bool = False
    aliases: tuple[str, ...] = ()


def audit(
    model: nn.Module,
    route: Mapping[str, str] | None = None,
) -> list[Route]:
    """Decide for every parameter of any model: Muon or AdamW, and why.

    Only shapes, names and module types are read, so a model on the meta
    device will do.

    Args:
        model: Any module.
        route: {name or glob: "muon" or "adamw"}, stronger than the rules.
            "muon" for a 3-D parameter declares a stack (E, m, n).

    Returns:
        One Route for each parameter, in the model's order; tied
        parameters once, under their first name.

    Raises:
        TypeError: ``model`` is no module, or ``route`` no mapping.
        ValueError: Some parameter is ambiguous (all are listed), or a
            route matches nothing, contradicts another, or asks for what
            Muon cannot take.

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
    """
    tensors = _tensors(model)  # [(all names, parameter)]
    wanted = resolve({} if route is None else route, [n for n, _ in tensors])
    sight = _Surroundings(model)
    routes, unclear = [], []
    for names, p in tensors:
        verdict = _strongest([classify(sight(name, p)) for name in names])
        if not p.requires_grad:
            verdict = Verdict("frozen", "frozen: requires_grad is False")
        elif names[0] in wanted and verdict.optimizer != "refused":
            verdict = _as_routed(names[0], p, verdict, wanted[names[0]])
        elif p.is_complex():
            verdict = Verdict("unclear", "complex; Muon takes real matrices")
        if verdict.optimizer in ("unclear", "refused"):
            unclear.append((names[0], p, verdict.reason))
        routes.append(_as_route(names, p, verdict))
    if unclear:
        raise ValueError(_complaint(unclear))
    return routes


def format_routes(routes: list[Route]) -> str:
    """The routes as a table, one line for all layers' copies of a parameter.

    Args:
        routes: From ``audit``.

    Returns:
        Text: optimizer, name with * for the layer, count, shape and reason, which
        goes on under itself where 78 columns do not hold it; then the number of
        tensors and of parameters on each optimizer.
    """
    counts: Counter[tuple] = Counter()
    for r in routes:
        reason = r.reason
        if r.aliases:
            reason += f"; tied with {', '.join(r.aliases)}"
        shape = " x ".join(map(str, r.shape)) or "scalar"
        counts[r.optimizer, _pattern(r.name), shape, reason] += 1
    order = sorted(counts, key=lambda row: list(TITLES).index(row[0]))
    rows = [("optimizer", "parameter", "count", "shape", "reason")]
    rows += [(TITLES[o], n, str(counts[o, n, s, r]), s, r) for o, n, s, r in order]
    wide = [max(len(row[i]) for row in rows) for i in range(4)]
    left = sum(wide) + 2 * len(wide)
    lines = []
    for o, n, c, s, r in rows:
        held = wrap(r, max(REASON, WIDTH - left), break_on_hyphens=False)
        line = f"{o:<{wide[0]}}  {n:<{wide[1]}}  {c:>{wide[2]}}  {s:<{wide[3]}}  "
        lines.append(line + f"\n{'':{left}}".join(held))
    for key, title in TITLES.items():
        sizes = [r.numel for r in routes if r.optimizer == key]
        if sizes:
            many = f"{len(sizes)} tensor{'s' * (len(sizes) > 1)}"
            lines.append(f"{title}: {many}, {sum(sizes):,} parameters")
    return "\n".join(lines)


class _Surroundings:
    """What the rules need to know of the whole model, gathered once."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.tables = {
            module.num_embeddings: _core(name) or "the embedding"
            for name, module in self.modules.items()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        }
        self.kin = Counter(
            (_pattern(name), p.shape)
            for name, p in model.named_parameters(remove_duplicate=False)
        )
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        self.trunk = _trunk([_core(name).split(".") for name in names])

    def __call__(self, name: str, p: Tensor) -> Sighting:
        owner_name = name.rpartition(".")[0]
        parent_name = owner_name.rpartition(".")[0]
        return Sighting(
            parts=tuple(_core(name).split(".")[self.trunk :]),
            p=p,
            owner=self.modules[owner_name],
            parent=self.modules[parent_name] if owner_name else None,
            repeated=self.kin[_pattern(name), p.shape] > 1,
            tables=self.tables,
        )


def _core(name: str) -> str:
    """The name without what wrappers add: "module.fc.weight" to "fc.weight"."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _trunk(paths: list[list[str]]) -> int:
    """How many parts all names begin with: 1 for "model.fc.weight", "model.conv.bias".

    Such a part only wraps the model, and its top is what comes next. A numbered list
    of layers wraps nothing.
    """
    levels = zip(*[path[:-1] for path in paths], strict=False)
    shared = takewhile(lambda level: len(set(level)) == 1, levels)
    named = len([*takewhile(lambda level: not level[0].isdigit(), shared)])
    named = min(named, max(map(len, paths), default=2) - 2)  # a layer is no wrapper
    numbered = any(path[named].isdigit() for path in paths)
    return max(0, named - numbered)


def _pattern(name: str) -> str:
    """The name with numbers out: "blocks.3.wq.weight" to "blocks.*.wq.weight"."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _tensors(model: nn.Module) -> list[tuple[list[str], Tensor]]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"audit takes a torch.nn.Module, got {type(model).__name__}")
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if is_lazy(p):
            raise ValueError(
                f"{name} is not initialized, so it has no shape to go by; run one "
                "forward pass before the audit"
            )
        found.setdefault(id(p), ([], p))[0].append(name)
    return list(found.values())


def resolve(
    route, named: list[list[str]], *, kind: str = "parameter", leave_out: str = FREEZE
) -> dict[str, tuple[str, str]]:
    """Which entry of a route rules which parameter; the JAX edition asks it, too.

    Args:
        route: {name or glob: "muon" or "adamw"}.
        named: The names of every parameter; several where it is tied.
        kind: What errors call one.
        leave_out: What errors advise to do with one that is for neither.

    Returns:
        {first name: the (key, value) of ``route``}, of those that it names.

    Raises:
        TypeError: ``route`` is no mapping.
        ValueError: A value is unknown, a key names nothing, or globs disagree.
    """
    if not isinstance(route, Mapping):
        raise TypeError(f"route must be a dict of name: optimizer, got {route!r}")
    for key, value in route.items():
        if value not in ("muon", "adamw"):
            raise ValueError(
                f'route[{key!r}] must be "muon" or "adamw", got {value!r}; to leave a '
                f"{kind} out, {leave_out}"
            )
    wanted, unused = {}, set(route)
    for names in named:
        keys = [key for key in route if any(fnmatchcase(n, key) for n in names)]
        exact = [key for key in route if key in names]  # also with [ or * in it
        unused -= {*keys, *exact}
        keys = exact or keys  # a name is stronger than a glob
        if len({route[key] for key in keys}) > 1:
            raise ValueError(
                f"route keys {' and '.join(map(repr, keys))} disagree on {names[0]}; "
                "add its exact name to the route"
            )
        if keys:
            wanted[names[0]] = (keys[0], route[keys[0]])
    if unused:
        first = [names[0] for names in named]
        raise ValueError(
            f"route keys {sorted(unused)} match no {kind}; there are "
            f"{', '.join(first[:8])}{' …' if len(first) > 8 else ''}"
        )
    return wanted


def _strongest(verdicts: list[Verdict]) -> Verdict:
    """Of the roles of a tied parameter: one reason for AdamW is enough."""
    order = ("refused", "adamw", "unclear", "muon")
    return min(verdicts, key=lambda verdict: order.index(verdict.optimizer))


def _as_routed(name: str, p: Tensor, ruled: Verdict, wanted: tuple) -> Verdict:
    key, optimizer = wanted
    if optimizer == "muon":
        check_muon_parameter(name, p, stacked=p.ndim == 3)
        if ruled.reason.startswith("kernel of"):
            raise ValueError(
                f"route[{key!r}] sends {name} of shape {tuple(p.shape)} to Muon, but "
                'the kernel of a convolution is no stack of matrices; use "adamw"'
            )
    return Verdict(optimizer, f'as route["{key}"] says', ruled.decay)


def _as_route(names: list[str], p: Tensor, verdict: Verdict) -> Route:
    return Route(
        name=names[0],
        shape=tuple(p.shape),
        numel=p.numel(),
        optimizer=verdict.optimizer,
        reason=verdict.reason,
        decay=verdict.decay,
        stacked=verdict.optimizer == "muon" and p.ndim == 3,
        aliases=tuple(names[1:]),
    )


def _complaint(unclear: list[tuple[str, Tensor, str]]) -> str:
    lines = [f"  {name} {tuple(p.shape)}: {why}" for name, p, why in unclear]
    example = f'route={{"{unclear[0][0]}": "adamw"}}'
    return "\n".join(
        (
            f"cannot tell Muon or AdamW for {len(unclear)} parameter(s):",
            *lines,
            f'say which, by name or glob, "muon" or "adamw": {example}',
        )
    )
