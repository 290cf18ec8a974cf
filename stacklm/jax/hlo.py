"""Read a compiled program: what it exchanges, and what it multiplies.

GSPMD turns one program for all data into one for each device and puts the exchanges in.
What it did is written in the partitioned HLO. We walk it from its entry, through every
computation it calls; the body of a loop counts as often as the loop turns.

Legend: bytes are those that an exchange leaves on one device; FLOPs are those of matrix
products on one device, two for a multiplication and an addition. Sources: the text form
of HLO, https://openxla.org/xla/operation_semantics; GSPMD, Xu et al. 2021,
arXiv:2105.04663. Taught in chapter 14.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
)
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "s64": 8, "s32": 4, "u32": 4}
BYTES |= {"u64": 8, "s16": 2, "u16": 2, "s8": 1, "u8": 1, "pred": 1}

HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
OPCODE = re.compile(r"(?:^|[\s})])([a-z][\w\-]*)\(")
SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
CALLED = re.compile(r"(?:calls|to_apply|condition|body)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
BODY = re.compile(r"body=%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
OPERANDS = re.compile(r"%([\w.\-]+)")
CONTRACTING = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


@dataclass
class Exchanges:
    """What a program exchanges and multiplies, on one device and in one call.

    Attributes:
        written: {kind: collectives in the text}; one in a loop counts once.
        executed: {kind: collectives that run}; one in a loop counts every turn.
        bytes: What they leave on one device (bytes).
        in_loops: Collectives in the text that are inside a loop.
        loops: Loops.
        dot_flops: FLOPs of matrix products on one device.
    """

    written: dict[str, int] = field(default_factory=dict)
    executed: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    in_loops: int = 0
    loops: int = 0
    dot_flops: int = 0


def count_exchanges(text: str) -> Exchanges:
    """Count what a partitioned program exchanges.

    Args:
        text: HLO after compilation, ``jax.jit(f).lower(...).compile().as_text()``.

    Returns:
        The counts.

    Raises:
        ValueError: The text has no entry, so it is no HLO module; or a loop that
            holds collectives or products does not say how often it turns.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> x = jnp.ones((8, 4))
        >>> compiled = jax.jit(lambda x: x @ x.T).lower(x).compile()
        >>> count_exchanges(compiled.as_text()).dot_flops
        512
    """
    entry, computations = _computations(text)
    if entry is None:
        raise ValueError(
            "this text has no ENTRY computation, so it is no HLO module; pass "
            "jax.jit(f).lower(...).compile().as_text()"
        )
    found = Exchanges()
    _walk(entry, computations, found, times=1, inside=False)
    return found


def format_exchanges(named: dict[str, Exchanges]) -> str:
    """Programs side by side as a table.

    Args:
        named: {name: counts}.

    Returns:
        Text: collectives written, inside loops and executed; bytes in MiB; FLOPs of
        products in millions; then each kind with the number written.
    """
    rows = [("", "written", "in loops", "executed", "MiB", "MFLOP")]
    for name, e in named.items():
        counts = (sum(e.written.values()), e.in_loops, sum(e.executed.values()))
        size, work = f"{e.bytes / 2**20:.1f}", f"{e.dot_flops / 1e6:,.0f}"
        rows.append((name, *map(str, counts), size, work))
    wide = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = [
        row[0].ljust(wide[0])
        + "".join(f"  {c:>{w}}" for c, w in zip(row[1:], wide[1:], strict=True))
        for row in rows
    ]
    for name, e in named.items():
        kinds = ", ".join(f"{e.written[kind]} {kind}" for kind in sorted(e.written))
        lines.append(f"{name}: {kinds or 'no collectives'}")
    return "\n".join(lines)


def _computations(text: str) -> tuple[str | None, dict[str, list[tuple[str, str]]]]:
    """The entry's name, and {computation: [(instruction, right-hand side)]}."""
    entry, current, computations = None, [], {}
    for line in text.splitlines():
        if head := HEADER.match(line):
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif instruction := INSTRUCTION.match(line):
            current.append((instruction[1], instruction[2]))
    return entry, computations


def _walk(name, computations, found: Exchanges, times: int, inside: bool) -> None:
    shapes = dict(computations[name])
    for _, rhs in computations[name]:
        opcode = _opcode(rhs)
        kind = opcode.removesuffix("-start")
        if kind in KINDS:
            found.written[kind] = found.written.get(kind, 0) + 1
            found.executed[kind] = found.executed.get(kind, 0) + times
            found.bytes += times * _bytes(rhs, opcode)
            found.in_loops += inside
        elif opcode == "dot":
            found.dot_flops += times * _dot_flops(rhs, shapes)
        elif opcode == "while":
            found.loops += 1
            _walk_loop(rhs, computations, found, times)
        elif kind not in KINDS:
            for called in _called(rhs):
                _walk(called, computations, found, times, inside)


def _walk_loop(rhs: str, computations, found: Exchanges, times: int) -> None:
    """The body of a loop, as often as the loop turns."""
    body, turns = BODY.search(rhs)[1], TRIPS.search(rhs)
    before = (*found.executed.values(), found.dot_flops)
    _walk(body, computations, found, times * int(turns[1] if turns else 1), True)
    if not turns and before != (*found.executed.values(), found.dot_flops):
        raise ValueError(
            f"the loop over {body} does not say how often it turns; write it with "
            "jax.lax.scan or a fori_loop with constant bounds"
        )


def _called(rhs: str) -> Iterator[str]:
    yield from CALLED.findall(rhs)
    for names in BRANCHES.findall(rhs):
        yield from (name.strip().lstrip("%") for name in names.split(","))


def _opcode(rhs: str) -> str:
    """ "f32[2]{0} add(...)" to "add"; a tuple of shapes may stand in front."""
    found = OPCODE.search(rhs)
    return found[1] if found else ""


def _result(rhs: str) -> list[tuple[str, tuple[int, ...]]]:
    """The shapes in front of the opcode: one, or those of a tuple."""
    front = rhs[: OPCODE.search(rhs).start(1)]
    return [
        (kind, tuple(int(n) for n in dims.split(",") if n))
        for kind, dims in SHAPE.findall(front)
    ]


def _bytes(rhs: str, opcode: str) -> int:
    """Bytes that an exchange leaves; an asynchronous one names its inputs, too."""
    shapes = _result(rhs)
    if opcode.endswith("-start"):
        shapes = shapes[len(shapes) // 2 :] if opcode != "all-reduce-start" else shapes
    return sum(BYTES[kind] * math.prod(dims) for kind, dims in shapes if kind in BYTES)


def _dot_flops(rhs: str, shapes: dict[str, str]) -> int:
    """Two FLOPs for each entry of the result and each term of its sum."""
    result = math.prod(_result(rhs)[0][1])
    operands = rhs[rhs.index("dot(") : rhs.index("),")]
    left = SHAPE.search(operands)  # some printers repeat the operand's shape
    if left:
        dims = [int(n) for n in left[2].split(",") if n]
    else:
        dims = _result(shapes[OPERANDS.search(operands)[1]])[0][1]
    summed = [int(n) for n in CONTRACTING.search(rhs)[1].split(",") if n]
    return 2 * result * math.prod(dims[i] for i in summed)
