"""Faults of data, runs and checkpoints, and of what notebooks and benchmarks use."""

from tests.mutants.faults import Fault

DATA = "train/data.py"
FILES, STATES = "train/checkpoint.py", "train/states.py"
WORLD = "train/world.py"

FAULTS = [
    Fault(
        "the same batch every step",
        DATA,
        "first = first_row(step, rows, micro, micros)",
        "first = first_row(0, rows, micro, micros)",
    ),
    Fault(
        "targets are the inputs",
        DATA,
        "(ids[:, :-1], ids[:, 1:])",
        "(ids[:, :-1], ids[:, :-1])",
    ),
    Fault(
        "loss across documents",
        DATA,
        "targets[docs[:, 1:] != docs[:, :-1]] = IGNORE_INDEX",
        "pass",
    ),
    Fault(
        "validation is training text",
        DATA,
        'Tokens(shards, *((0, cut) if split == "train" else (cut, None)))',
        "Tokens(shards, 0, cut)",
    ),
    Fault(
        "epochs in the same order",
        "train/shuffle.py",
        "return _mix(_mix(start) + epoch * GOLDEN)",
        "return _mix(_mix(start) + epoch * np.uint64(0))",
    ),
    Fault(
        "a shuffle with collisions",
        "train/shuffle.py",
        "while (outside := window >= n).any():",
        "window %= np.uint64(n)\n    while (outside := window >= n).any():",
    ),
    Fault(
        "mixture by halves",
        "train/mix.py",
        "share = weight / total\n",
        "share = Fraction(1, 2) if total != weight else Fraction(1)\n",
    ),
    Fault(
        "micro-batches of one another",
        "train/feed.py",
        '"micro": piece, "micros"',
        '"micro": 0, "micros"',
    ),
    Fault(
        "validation drawn anew",
        "train/validation.py",
        "world or World(), VALIDATION_SEED",
        "world or World(), cfg.seed",
    ),
    Fault(
        "ids above the vocabulary pass",
        "train/shards.py",
        "if len(ids) and ids.max() >= vocab_size:",
        "if False:",
    ),
    Fault(
        "checksums are not compared",
        "train/shards.py",
        "if zlib.crc32(block) != crc:",
        "if False:",
    ),
    Fault(
        "empty documents are skipped silently",
        "train/writer.py",
        "elif skip_empty:",
        "elif True:",
    ),
    Fault(
        "bytes above 127 lost",
        "train/tokenizer.py",
        "t.encode(), np.uint8",
        't.encode("ascii", "replace"), np.uint8',
    ),
    Fault(
        "a torn checkpoint",
        FILES,
        "os.replace(aside, path)",
        "path.write_bytes(aside.read_bytes())",
    ),
    Fault(
        "checksum not compared",
        FILES,
        "if _digest(tensors, text) != noted:",
        "if False:",
    ),
    Fault(
        "state keyed by number",
        STATES,
        'tensors[f"{part}/{name}/{entry}"] = value',
        'tensors[f"{part}/{len(tensors)}/{entry}"] = value',
    ),
    Fault(
        "random numbers not restored",
        STATES,
        'torch.set_rng_state(rng["cpu"])',
        "pass",
    ),
    Fault(
        "the oldest checkpoints stay",
        FILES,
        "for old in checkpoints(folder)[:-keep_last]:",
        "for old in checkpoints(folder)[keep_last:]:",
    ),
    Fault(
        "resume begins anew",
        "train/loop.py",
        "run.step, run.skips = plan.start.step",
        "run.step, run.skips = 0",
    ),
    Fault(
        "a diverged run goes on",
        "train/loop.py",
        "if skips >= self.run_cfg.max_skips:",
        "if False:",
    ),
    Fault(
        "branch from anywhere",
        "train/resume.py",
        "not first <= trunk.step <= last",
        "False",
    ),
    Fault(
        "another configuration resumes",
        "train/resume.py",
        "and not unknown and then.get(name) != value:",
        "and not unknown and False:",
    ),
    Fault(
        "two runs in a folder",
        "train/lock.py",
        "        lock.acquire()\n",
        "        pass\n",
    ),
    Fault(
        "Ctrl-C is not heard",
        "train/interrupt.py",
        "        self.asked = True\n",
        "        self.asked = False\n",
    ),
    Fault(
        "metrics of undone steps stay",
        "train/log.py",
        'record["step"] >= step',
        'record["step"] > 10**9',
    ),
    Fault(
        "momentum not set",
        "train/recipes.py",
        'group["momentum"] = cfg.momentum',
        "pass",
    ),
    Fault("typos in fields pass", "train/presets.py", "raise ValueError(", "print("),
    Fault(
        "times of the first round only",
        "bench/clock.py",
        "return statistics.median(self.seconds)",
        "return self.seconds[0]",
    ),
    Fault(
        "products counted twice",
        "bench/launches.py",
        "event.cpu_parent is None or event.cpu_parent.name != event.name",
        "True",
    ),
    Fault(
        "tall baseline not laid wide",
        "bench/cases.py",
        "X = G.mT if G.size(0) > G.size(1) else G",
        "X = G",
    ),
    Fault(
        "entropy of the wrong token",
        "notebook/toy.py",
        "last, before, following = x[..., 1:-1], x[..., :-2], x[..., 2:, None]",
        "last, before, following = x[..., :-2], x[..., 1:-1], x[..., 2:, None]",
    ),
    Fault(
        "updates with their decay",
        "notebook/updates.py",
        'kept = 1 - lr * group_of[id(p)]["weight_decay"]',
        "kept = 1.0",
    ),
    Fault(
        "storages counted twice",
        "notebook/tiers.py",
        "kept[storage.data_ptr()] = (storage.nbytes(), x)",
        "kept[len(kept)] = (storage.nbytes(), x)",
    ),
    Fault(
        "losses of other ranks left out",
        WORLD,
        "table[:, :1].sum(0)",
        "table[:1, :1].sum(0)",
    ),
    Fault(
        "maxima of the first rank alone",
        WORLD,
        "table[:, 2:].amax(0)",
        "table[0, 2:]",
    ),
    Fault(
        "a copy's norm counted by every replica",
        WORLD,
        "get_total_norm(own) / copies**0.5",
        "get_total_norm(own)",
    ),
    Fault(
        "another rank's wish to stop is not heard",
        WORLD,
        "self.stop = bool(stop)",
        "self.stop = self.asked()",
    ),
    Fault(
        "targets counted by each rank alone", WORLD, "dist.all_reduce(value", "id(value"
    ),
]
