"""What the loop costs: ``python -m stacklm.train.bench_loop``.

Our loop and a plain one, as one writes it by hand around ``torch.optim.AdamW``, train
the same model on the same text, by turns. Compared is the time outside the optimizers'
steps: batches, forward and backward passes, clipping, logging. Units: milliseconds per
step, of the median step; MB of peak memory, each loop in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import torch
from torch.optim import AdamW

from stacklm.model import Stack100M
from stacklm.train.data import open_tokens
from stacklm.train.loop import pretrain
from stacklm.train.options import RunConfig
from stacklm.train.presets import PRESETS, override
from stacklm.train.recipes import muon_and_adamw

LOOPS = ("plain", "ours", "ours without QK-clip")


class Clock:
    """Times whole steps, and what the optimizers take of them."""

    def __init__(self, device: str, timer=time.perf_counter):
        self.device, self.timer = device, timer
        self.begins: list[float] = []
        self.inside: list[float] = []

    def now(self) -> float:
        """Seconds, when all that was asked of the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return self.timer()

    def begin(self) -> None:
        """A step begins, and the one before has ended."""
        self.begins.append(self.now())
        self.inside.append(0.0)

    def watch(self, optimizer) -> None:
        """Count the time in an optimizer's step."""

        def before(*_):
            self.inside[-1] -= self.now()

        def after(*_):
            self.inside[-1] += self.now()

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)

    def steps(self) -> list[tuple[float, float]]:
        """(outside, inside) the optimizers for each whole step; the first is warmup."""
        ends = self.begins[1:]
        times = zip(self.begins[:-1], ends, self.inside[:-1], strict=True)
        return [(end - begin - inside, inside) for begin, end, inside in times][1:]


class TimedTokens:
    """Tokens that tell a clock when a step asks for its first batch."""

    def __init__(self, tokens, clock: Clock):
        self.tokens, self.clock = tokens, clock
        self.vocab_size = tokens.vocab_size

    def __len__(self):
        return len(self.tokens)

    def batch(self, step, **place):
        """The tokens' own batch."""
        if place["micro"] == 0:
            self.clock.begin()
        return self.tokens.batch(step, **place)


def ours(preset, tokens, clock: Clock, **changes) -> None:
    """Our loop, with all that it does by default."""

    def build(model, cfg):
        pair = muon_and_adamw(model, cfg)
        for optimizer in pair:
            clock.watch(optimizer)
        return pair

    with tempfile.TemporaryDirectory() as out:
        pretrain(
            preset.model,
            replace(preset.train, **changes),
            TimedTokens(tokens, clock),
            out=out,  # metrics are written, too
            optimizers=build,
            run_cfg=RunConfig(validate_every=0),
            device=clock.device,
        )


def plain(preset, tokens, clock: Clock) -> None:
    """The loop that one writes first, and nothing more."""
    cfg, device = preset.train, clock.device
    text = torch.from_numpy(tokens.read(0, len(tokens))[0].astype("int64"))
    torch.manual_seed(cfg.seed)
    model = Stack100M(preset.model).to(device)
    optimizer = AdamW(model.parameters(), lr=cfg.adamw_peak_lr, betas=cfg.betas)
    clock.watch(optimizer)
    for step in range(cfg.total_steps):
        clock.begin()
        for group in optimizer.param_groups:
            group["lr"] = cfg.adamw_peak_lr * min(1, (step + 1) / cfg.warmup_steps)
        optimizer.zero_grad()
        mean = 0.0
        for _ in range(cfg.grad_accum_steps):
            starts = torch.randint(len(text) - cfg.seq_len, (cfg.micro_batch_size,))
            rows = torch.stack([text[i : i + cfg.seq_len + 1] for i in starts])
            rows = rows.to(device, non_blocking=True)
            x, targets = rows[:, :-1], rows[:, 1:]
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(x, targets)[1] / cfg.grad_accum_steps
            loss.backward()
            mean += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()


def measure(loop: str, preset, tokens, clock: Clock) -> list[tuple[float, float]]:
    """(outside, inside) the optimizers, in seconds, for every step of one turn."""
    if loop == "plain":
        plain(preset, tokens, clock)
    else:
        ours(preset, tokens, clock, **({} if loop == "ours" else {"qk_clip_every": 0}))
    return clock.steps()


def peak_mb(device: str) -> float:
    """Peak memory of this process: the GPU's, or on a CPU all that is resident."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    settings = [f"total_steps={args.steps}", "warmup_steps=2", "decay_frac=0.2"]
    preset = override(PRESETS[args.config], settings + args.set)
    tokens = open_tokens(args.data)
    if args.memory_of:
        measure(args.memory_of, preset, tokens, Clock(args.device))
        print(peak_mb(args.device))
        return 0
    timer = time.process_time if args.processor_time else time.perf_counter
    turns = []
    for _ in range(args.turns):  # by turns, so that a busy moment meets all of them
        clocks = {loop: Clock(args.device, timer) for loop in LOOPS}
        turns.append(
            {loop: measure(loop, preset, tokens, clocks[loop]) for loop in LOOPS}
        )
    threads = torch.get_num_threads()
    print(f"{' '.join([args.config, *args.set])}, {args.device}, {threads} threads")
    for loop in LOOPS:
        outside, inside = (
            statistics.median(step[part] for turn in turns for step in turn[loop])
            for part in (0, 1)
        )
        speed = preset.train.tokens_per_step / (outside + inside)
        print(
            f"{loop:<21} {1e3 * outside:8.2f} ms outside the optimizer "
            f"({_ratio(loop, turns)} of plain), {1e3 * inside:7.2f} ms inside, "
            f"{speed:9,.0f} tokens/s, {_memory(loop, args):7,.0f} MB"
        )
    return 0


def _ratio(loop: str, turns: list[dict]) -> str:
    """Time outside the optimizer against the plain loop of the same turn, +- error."""
    ratios = [_outside(turn[loop]) / _outside(turn["plain"]) for turn in turns]
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    return f"{statistics.median(ratios):.3f} ± {spread:.3f}"


def _outside(steps: list[tuple[float, float]]) -> float:
    return statistics.median(outside for outside, _ in steps)


def _memory(loop: str, args) -> float:
    command = [sys.executable, "-m", "stacklm.train.bench_loop", "--memory-of", loop]
    same = ["--config", args.config, "--data", args.data, "--device", args.device]
    more = ["--steps", "5", *(["--set", *args.set] if args.set else [])]
    done = subprocess.run([*command, *same, *more], capture_output=True, check=True)
    return float(done.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stacklm.train.bench_loop",
        description="Time and memory of our loop and of a plain one around AdamW.",
    )
    add = parser.add_argument
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--config", choices=PRESETS, default="toy", help="model and batch")
    add("--data", default="moby-dick", help="as in python -m stacklm.train")
    add("--device", choices=("cpu", "cuda"), default=device, help="where")
    add("--steps", type=int, default=12, help="of each turn")
    add("--turns", type=int, default=24, help="of each loop")
    add("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="other fields")
    add(
        "--processor-time",
        action="store_true",
        help="count processor time, which other programs disturb less (CPU only)",
    )
    add("--memory-of", choices=LOOPS, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
