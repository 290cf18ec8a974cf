"""The README's Python runs as it stands, in a loop like a reader's own."""

import re

import torch
from torch import nn

from stacklm.optim import build_optimizers


class Block(nn.Module):
    """Two hidden matrices around a nonlinearity."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    """A reader's model: returns its loss."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 16)

    def forward(self, ids):
        x = self.embed(ids[:, :-1])
        for block in self.blocks:
            x = block(x)
        logits = self.head(x).flatten(0, 1)
        return nn.functional.cross_entropy(logits, ids[:, 1:].flatten())


def test_the_loop_in_the_readme_trains_a_readers_model(root, capsys):
    readme = (root / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    torch.manual_seed(0)
    model = Net()
    batch = torch.randint(16, (8, 9))
    before = model(batch).item()
    exec(compile(code, "README.md", "exec"), {"model": model, "batches": [batch] * 30})
    assert model(batch).item() < 0.8 * before
    assert "Muon: 4 tensors" in capsys.readouterr().out


def test_the_route_in_the_readme_is_one_that_build_optimizers_takes(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    (route,) = re.findall(r"route=(\{.*?\})", readme)
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"proj": nn.Linear(8, 24)})})
    model["norm"] = nn.LayerNorm(8)
    muon, _ = build_optimizers(model, route=eval(route))
    assert [p.shape for g in muon.param_groups for p in g["params"]] == [(24, 8)]
