"""Faults of what only notebooks use, and of commands."""

from tests.mutants.faults import Fault

FIGURES = "notebook/figures/"
SHARDING, LOGITS = "notebook/sharding.py", "notebook/logits.py"

FAULTS = [
    Fault(
        "layers in the order they were made",
        "_layers.py",
        "found.sort(key=lambda layer: layer.layer_idx)",
        "found.sort(key=lambda layer: -layer.layer_idx)",
    ),
    Fault(
        "layers without numbers",
        "_layers.py",
        "if numbers != list(range(len(found))):",
        "if False:",
    ),
    Fault(
        "noise of one sample",
        "notebook/budget.py",
        "large = size * len(gradients)",
        "large = size * (len(gradients) + 1)",
    ),
    Fault(
        "the ratio of the peaks is not held",
        "notebook/sweep.py",
        "muon_lr / RATIO if adamw_lr is None",
        "muon_lr if adamw_lr is None",
    ),
    Fault(
        "a lowest point at the end of the grid",
        "notebook/sweep.py",
        "if best in (min(means), max(means)):",
        "if False:",
    ),
    Fault(
        "tokens of one micro-batch",
        "notebook/throughput.py",
        "tokens = train_cfg.tokens_per_step / seconds",
        "tokens = train_cfg.micro_batch_size * train_cfg.seq_len / seconds",
    ),
    Fault(
        "products around products",
        "notebook/spans.py",
        "return [span for span in spans if id(span) not in outer]",
        "return spans",
    ),
    Fault(
        "every day the same weather",
        "notebook/logbook.py",
        "draw = Random(seed)",
        "draw = Random(0)",
    ),
    Fault(
        "logits without their scale",
        LOGITS,
        "return q @ k.mT / math.sqrt(attn.head_dim)",
        "return q @ k.mT",
    ),
    Fault("logits of the future", LOGITS, ".triu(1)", ".triu(2)"),
    Fault(
        "the same gradients in every step",
        SHARDING,
        "seed=100 + step)",
        "seed=100)",
    ),
    Fault(
        "momentum is not saved",
        SHARDING,
        'found |= {name: p.detach(), f"{name}.momentum": B}',
        'found |= {name: p.detach(), f"{name}.momentum": torch.zeros_like(B)}',
    ),
    Fault(
        "each rank clips by its own maximum",
        "notebook/gallery.py",
        "qk_clip_(model, own, group=dist.group.WORLD)",
        "qk_clip_(model, own)",
    ),
    Fault(
        "a toy that is not loud",
        "notebook/clipping.py",
        "largest_logits(model).max().item()) ** 0.5",
        "largest_logits(model).max().item()) ** 0.25",
    ),
    Fault(
        "any answer of the right kind is correct",
        "notebook/checking.py",
        "close = number is not None and abs(number - float(want)) <= gap",
        "close = number is not None",
    ),
    Fault(
        "a changed input goes unnoticed",
        "notebook/checking.py",
        "if difference(args, untouched, rtol=0.0) is not None:",
        "if False:",
    ),
    Fault(
        "NaN equals every tensor",
        "notebook/checking.py",
        "if gap <= allowed:",
        "if not gap > allowed:",
    ),
    Fault(
        "docstrings are shown",
        "notebook/display.py",
        "lines[doc.lineno - 1 : end] = rest",
        "pass",
    ),
    Fault(
        "glue keeps all digits",
        "notebook/display.py",
        "_plain(name, value, digits)",
        "_plain(name, value, 15)",
    ),
    Fault(
        "the device is not named",
        "notebook/device.py",
        'print(f"{device}: {what},',
        'print(f"{what},',
    ),
    Fault(
        "the outer dial does nothing",
        "notebook/explorer.py",
        'widgets.jslink((outer, "index"), (whole, "selected_index"))',
        "pass",
    ),
    Fault(
        "frames without their numbers",
        "notebook/explorer.py",
        'f"<figcaption>{html.escape(caption)}</figcaption></figure>"',
        '"</figure>"',
    ),
    Fault(
        "bars of another height",
        FIGURES + "clipping.py",
        "ax.bar(at + shift, row,",
        "ax.bar(at + shift, before,",
    ),
    Fault(
        "the best seed for the mean",
        FIGURES + "curves.py",
        "middle = [each.mean() for _, each in row]",
        "middle = [each.min() for _, each in row]",
    ),
    Fault(
        "a line over other steps",
        FIGURES + "plots.py",
        "if row.shape != x.shape:",
        "if False:",
    ),
    Fault(
        "blocks that begin too early",
        FIGURES + "sharding.py",
        "(begin, end - begin) for begin, end in blocks",
        "(0, end) for begin, end in blocks",
    ),
    Fault(
        "spectra in the order they came",
        FIGURES + "spectra.py",
        "np.sort(numbers(values, name))[::-1]",
        "numbers(values, name)",
    ),
    Fault(
        "names over one another",
        FIGURES + "style.py",
        "placed[-1] + gap) if placed else at",
        "placed[-1]) if placed else at",
    ),
    Fault(
        "torchrun's rank is not read",
        "train/launch.py",
        'return int(os.environ.get("RANK", "0")) if _size() > 1 else 0',
        "return 0",
    ),
    Fault(
        "replicas of unequal size",
        "train/launch.py",
        "if replicas < 1 or size % replicas:",
        "if replicas < 1:",
    ),
    Fault(
        "the sweep stops at the first better rate",
        "train/learns.py",
        "missing = [k for k in (best - 1, best + 1) if k not in tried]",
        "missing = [k for k in (best - 1,) if k not in tried]",
    ),
    Fault(
        "a lost rank is any error",
        "train/lost.py",
        "if world.size == 1 or not is_loss_of_a_rank(error):",
        "if is_loss_of_a_rank(error):",
    ),
    Fault(
        "no checkpoint may stay",
        "train/options.py",
        '["validate_batches", "keep_last", "max_skips"]',
        '["validate_batches", "max_skips"]',
    ),
    Fault(
        "another text is Moby-Dick",
        "train/sources.py",
        "if hashlib.sha256(text).hexdigest() != MOBY_DICK_SHA256:",
        "if False:",
    ),
    Fault(
        "letters cut in two",
        "train/sources.py",
        "data[cut] & 0xC0 == 0x80",
        "data[cut] & 0xC0 == 0xC0",
    ),
    Fault(
        "an interrupted run reports success",
        "train/__main__.py",
        "return 130 if run.interrupted else 0",
        "return 0",
    ),
    Fault(
        "time inside the optimizers counts twice",
        "train/bench_loop.py",
        "(end - begin - inside, inside)",
        "(end - begin, inside)",
    ),
    Fault(
        "every rank has its own gradients",
        "bench/steps.py",
        "rng = torch.Generator().manual_seed(seed)",
        "rng = torch.Generator(); rng.seed()",
    ),
    Fault(
        "peers write to the gradients",
        "bench/peers.py",
        "p.grad = g.clone()  # some packages write to it",
        "p.grad = g",
    ),
    Fault(
        "a busy machine is not mentioned",
        "bench/__main__.py",
        '"load": {"before": before, "after": load()},',
        '"load": {"before": 0.0, "after": 0.0},',
    ),
]
