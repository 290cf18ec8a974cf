"""What a routing rule is shown of a parameter, and what it answers.

The words that names are made of are cut here, in one place: a rule that looked for
"emb" inside a name would find it in "ensemble". Shapes are those of ``torch.nn``: a
Linear weight is (out, in). Taught in chapter 01.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Verdict:
    """Where a parameter belongs.

    Attributes:
        optimizer: "muon", "adamw", "unclear" (the user must say), or "refused" (neither
            can take it, whatever the user says).
        reason: Why, in a few words.
        decay: Whether AdamW applies weight decay.
    """

    optimizer: str
    reason: str
    decay: bool = True


@dataclass(frozen=True)
class Sighting:
    """One name of a parameter, and what the rules may look at.

    Attributes:
        parts: The dotted name in parts, without those that wrappers add.
        p: The parameter; only its shape is read.
        owner: The module that holds it.
        parent: The module that holds the owner, or None.
        repeated: Whether numbered siblings hold a parameter of this name and shape.
        tables: {rows of an embedding: its name}, of the whole model.
    """

    parts: tuple[str, ...]
    p: Tensor
    owner: nn.Module
    parent: nn.Module | None
    repeated: bool
    tables: dict[int, str]

    @property
    def leaf(self) -> str:
        return self.parts[-1].lower()

    @property
    def leaf_words(self) -> set[str]:
        return words_of(self.parts[-1])

    @property
    def names(self) -> list[str]:
        """The modules on the way to the parameter, without those that have a number."""
        return [part for part in self.parts[:-1] if not part.isdigit()]

    @property
    def label(self) -> str:
        """The owner's name, or its container's where the owner is only a number."""
        return self.names[-1] if self.names else ""

    @property
    def label_words(self) -> set[str]:
        return words_of(self.label)

    @property
    def path_words(self) -> set[str]:
        return set().union(*(words_of(name) for name in self.names))

    @property
    def in_block(self) -> bool:
        """Whether a container above the owner is numbered, as in blocks.3.mlp.w_up."""
        return any(part.isdigit() for part in self.parts[:-2])


def words_of(name: str) -> set[str]:
    """``"in_projQKV"`` to {"in", "proj", "qkv"}: at underscores and at capitals.

    Of several capitals the last may begin a word: ``"KVProj"`` to {"kv", "proj"}.
    """
    capitals = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return set(re.sub(capitals, "_", name).lower().split("_"))


def about_attention(name: str) -> bool:
    """Whether a module's name or class says that it is attention."""
    return "attn" in name.lower() or "attention" in name.lower()
