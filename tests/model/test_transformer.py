"""The whole model: head, loss, initialization, state, precision, refusals."""

import doctest
import math

import pytest
import torch

import stacklm.model.attention
import stacklm.model.transformer
from stacklm.config import StackConfig, toy_config
from stacklm.model import Stack100M, rope_tables, token_loss


def test_stack_100m_itself_runs_on_the_meta_device():
    with torch.device("meta"):
        model = Stack100M(StackConfig())
        tokens = torch.zeros(2, 2_048, dtype=torch.long)
    logits, loss = model(tokens, tokens, seq_ids=tokens)
    assert sum(p.numel() for p in model.parameters()) == 101_353_728
    assert logits.shape == (2, 2_048, 32_768)
    assert loss.shape == ()


@torch.no_grad()
def test_model_equals_its_formula(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 7)
    rope = rope_tables(7, 16, theta=10_000.0, dtype=torch.float64)

    def norm(x, gains):
        return gains * x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt()

    x = model.tok_emb.weight[tokens]
    for block in model.blocks:
        mlp = block.mlp
        x = x + block.attn(norm(x, block.norm1.weight), rope)
        y = norm(x, block.norm2.weight)
        gate = y @ mlp.w_gate.weight.T
        hidden = gate / (1 + torch.exp(-gate)) * (y @ mlp.w_up.weight.T)
        x = x + hidden @ mlp.w_down.weight.T
    by_hand = norm(x, model.final_norm.weight) @ model.tok_emb.weight.T
    torch.testing.assert_close(model(tokens)[0], by_hand, rtol=0, atol=1e-11)


def test_tied_head_is_the_embedding(make_model, make_tokens):
    model = make_model()
    assert not hasattr(model, "lm_head")
    hidden = []
    model.final_norm.register_forward_hook(lambda *call: hidden.append(call[-1]))
    logits, _ = model(make_tokens(2, 5))
    torch.testing.assert_close(logits, hidden[0] @ model.tok_emb.weight.T)
    logits.sum().backward()
    # Rows of tokens that never went in have a gradient only through the head.
    assert (model.tok_emb.weight.grad.abs().sum(dim=1) > 0).all()


def test_untied_head_is_a_matrix_of_its_own(make_model, make_tokens):
    model = make_model(tie_embeddings=False)
    assert model.lm_head.weight.shape == (256, 64)
    assert model.lm_head.weight.data_ptr() != model.tok_emb.weight.data_ptr()
    tokens = make_tokens(2, 5)
    before, _ = model(tokens)
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    torch.testing.assert_close(model(tokens)[0], 2 * before)


@torch.no_grad()
def test_loss_equals_a_loop(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 6)
    targets = make_tokens(2, 6, seed=2)
    targets[0, 3] = targets[1, 5] = -100
    logits, loss = model(tokens, targets)
    terms = []
    for row, column in (targets != -100).nonzero().tolist():
        chances = logits[row, column].exp() / logits[row, column].exp().sum()
        terms.append(-math.log(chances[targets[row, column]]))
    assert len(terms) == 10
    assert loss.item() == pytest.approx(sum(terms) / 10, abs=1e-12)


def test_loss_without_any_target_is_zero_and_moves_nothing(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(1, 4)
    _, loss = model(tokens, torch.full_like(tokens, -100))
    loss.backward()
    assert loss == 0
    assert all(p.grad.abs().max() == 0 for p in model.parameters())


def test_loss_is_taken_in_float32():
    torch.manual_seed(0)
    logits = torch.randn(1, 8, 256).bfloat16()
    targets = torch.randint(256, (1, 8))
    loss = token_loss(logits, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, token_loss(logits.double(), targets).float())


def test_without_targets_there_is_no_loss(make_model, make_tokens):
    assert make_model()(make_tokens(1, 4))[1] is None


def test_int32_ids_are_as_good(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(1, 4)
    logits, loss = model(tokens.int(), tokens.int(), tokens.int())
    same_logits, same_loss = model(tokens, tokens, tokens)
    assert torch.equal(logits, same_logits)
    assert loss == same_loss


@pytest.mark.parametrize("cfg", [toy_config(n_layers=8), toy_config(qk_norm=False)])
def test_initialization(cfg):
    torch.manual_seed(0)
    model = Stack100M(cfg)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == 1).all(), name
            continue
        writes = name.endswith(("wo.weight", "w_down.weight"))
        std = 0.02 / math.sqrt(2 * cfg.n_layers) if writes else 0.02
        # The smallest matrix has 2,048 entries: its std is off by 1.6 % (one sigma).
        assert parameter.std().item() == pytest.approx(std, rel=0.07), name
        assert abs(parameter.mean().item()) < 5 * std / math.sqrt(parameter.numel())


def test_initial_loss_is_that_of_guessing(make_tokens):
    torch.manual_seed(0)
    model = Stack100M(toy_config())
    _, loss = model(make_tokens(8, 32), make_tokens(8, 32, seed=2))
    assert loss.item() == pytest.approx(math.log(256), abs=0.1)


def test_the_seed_decides_the_weights():
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(Stack100M(toy_config()).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["tok_emb.weight"], states[2]["tok_emb.weight"])


def test_a_meta_model_can_be_filled_in(make_tokens):
    torch.manual_seed(0)
    plain = Stack100M(toy_config())
    with torch.device("meta"):
        filled = Stack100M(toy_config())
    filled.to_empty(device="cpu").load_state_dict(plain.state_dict())
    assert torch.equal(filled(make_tokens(1, 9))[0], plain(make_tokens(1, 9))[0])
    torch.nn.init.zeros_(filled.blocks[0].attn.q_norm.weight)
    filled.reset_parameters()
    assert not torch.equal(filled.tok_emb.weight, plain.tok_emb.weight)
    assert (filled.blocks[0].attn.q_norm.weight == 1).all()


def test_state_dict_keys_are_stable():
    per_block = ["norm1", "norm2", "attn.q_norm", "attn.k_norm"]
    per_block += [f"attn.{name}" for name in ("wq", "wk", "wv", "wo")]
    per_block += [f"mlp.{name}" for name in ("w_gate", "w_up", "w_down")]
    keys = {f"blocks.{i}.{name}.weight" for i in range(2) for name in per_block}
    keys |= {"tok_emb.weight", "final_norm.weight"}
    assert set(Stack100M(toy_config()).state_dict()) == keys
    untied = Stack100M(toy_config(tie_embeddings=False)).state_dict()
    assert set(untied) == keys | {"lm_head.weight"}
    assert [b.attn.layer_idx for b in Stack100M(toy_config()).blocks] == [0, 1]


def test_bf16_autocast_trains_in_float32(make_tokens):
    torch.manual_seed(0)
    model, tokens = Stack100M(toy_config()), make_tokens(2, 64)
    _, exact = model(tokens, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        logits, loss = model(tokens, tokens, seq_ids=torch.zeros_like(tokens))
    loss.backward()
    assert logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    # bfloat16 keeps 8 bits: products are off by some 0.4 %, the mean by less.
    assert loss.item() == pytest.approx(exact.item(), rel=0.004)
    for name, parameter in model.named_parameters():
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_toy_learns_a_batch_by_heart(make_tokens):
    torch.manual_seed(0)
    model, tokens = Stack100M(toy_config()), make_tokens(2, 17)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        adamw.zero_grad()
        loss.backward()
        adamw.step()
    assert loss.item() < 0.05


def test_compiles_into_one_graph(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 16)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    seq_ids = (torch.arange(16) // 6).expand(2, 16)
    logits, loss = compiled(tokens, tokens, seq_ids)
    same_logits, same_loss = model(tokens, tokens, seq_ids)
    torch.testing.assert_close(logits, same_logits)
    torch.testing.assert_close(loss, same_loss)


GOOD = torch.zeros(2, 8, dtype=torch.long)
REFUSED = [
    ({"tokens": GOOD.float()}, TypeError, "tokens must be an int32 or int64 tensor"),
    ({"tokens": [[1, 2]]}, TypeError, "got list; convert with torch.as_tensor"),
    ({"tokens": GOOD[0]}, ValueError, r"\(B, T\) .* got shape \(8,\)"),
    ({"tokens": GOOD[:, :0]}, ValueError, "at least one token"),
    ({"tokens": GOOD.new_zeros(1, 257)}, ValueError, "max_seq_len = 256, got 257"),
    ({"tokens": GOOD + 256}, ValueError, "tokens must lie in 0 … 255, got 256"),
    ({"tokens": GOOD - 100}, ValueError, "tokens must lie in 0 … 255, got -100"),
    ({"targets": GOOD - 1}, ValueError, "targets must lie in 0 … 255, got -1"),
    ({"targets": GOOD[:, 1:]}, ValueError, r"targets .* shape of tokens, \(2, 8\)"),
    ({"targets": GOOD.bool()}, TypeError, "targets must be an int32 or int64"),
    ({"seq_ids": GOOD[0]}, ValueError, "seq_ids must have the shape of tokens"),
    ({"seq_ids": GOOD.double()}, TypeError, "seq_ids must be an int32 or int64"),
    ({"record": []}, TypeError, "record must be a dict or a LogitRecord, got list"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_bad_batches_are_refused(given, error, message):
    model = Stack100M(toy_config())
    with pytest.raises(error, match=message):
        model(**{"tokens": GOOD, **given})


@pytest.mark.parametrize("module", [stacklm.model.attention, stacklm.model.transformer])
def test_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
