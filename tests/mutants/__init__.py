"""Seeded faults: does a notebook cell or a test notice?"""

from tests.mutants import (
    faults_book,
    faults_checks,
    faults_data,
    faults_jax,
    faults_model,
    faults_numbers,
    faults_rules,
)
from tests.mutants.faults import ROOT, Fault


def chapters(*names: str) -> list[str]:
    """Paths of chapters, by name."""
    return [f"chapters/{name}.ipynb" for name in names]


STEP, RUN, RANKS = "10_complete_step", "11_real_run", "13_stacked_and_sharded"
GALLERY, GALLERY_RANKS = "15_failure_gallery", "15_failure_gallery_ranks"
# Lists of promises: of all notebooks the quickest, so they are asked first.
STEPS, RUNS = "guarantees", "guarantees_run"
ROUTED = [*chapters(STEPS, "01_why_muon", GALLERY), "solutions/11_route_a_model.ipynb"]


def train(*tests: str) -> list[str]:
    """Paths of tests of training, by name, then all of them."""
    return [*(f"tests/train/test_{name}.py" for name in tests), "tests/train"]


def optim(*tests: str) -> list[str]:
    """Paths of tests of the optimizer, by name, then all of them."""
    return [*(f"tests/optim/test_{name}.py" for name in tests), "tests/optim"]


# Who is asked about a fault in a file: the longest prefix counts; notebooks first, and
# of notebooks and tests the quick ones that are near the file.
CATCHERS: dict[str, list[str]] = {
    "": ["tests/notebook", "tests/optim", "tests/train"],
    "config.py": [*chapters(STEPS, "12_budget", "01_why_muon"), "tests/test_config.py"],
    "_counts.py": [*chapters("12_budget", "01_why_muon"), "tests/test_config.py"],
    "_checks.py": [*chapters(STEPS), "tests/test_config.py", "tests/train"],
    "_layers.py": [*chapters(STEPS, "06_qk_norm", "08_qk_clip"), "tests/model"],
    "model/attention.py": [
        *chapters(STEPS, "06_qk_norm", "07_measuring_s_max"),
        "tests/model",
    ],
    "model/scores.py": [
        *chapters(STEPS, "07_measuring_s_max", "08_qk_clip"),
        "tests/model",
    ],
    "model/records.py": [*chapters("07_measuring_s_max", "06_qk_norm"), "tests/model"],
    "model/transformer.py": [
        *chapters("06_qk_norm", STEP, "01_why_muon", "errata"),
        "tests/model",
    ],
    "optim/": ["tests/optim"],
    "optim/newton_schulz.py": [
        *chapters("02_newton_schulz", "03_muon_step", "04_flops_and_launches"),
        *optim("newton_schulz", "newton_schulz_edges"),
    ],
    "optim/gram.py": [*chapters("04_flops_and_launches"), *optim("plan_forms")],
    "optim/symmetric.py": [*chapters("04_flops_and_launches"), *optim("plan_forms")],
    "optim/plan.py": [*chapters("04_flops_and_launches"), *optim("plan", "plan_forms")],
    "optim/muon.py": [
        *chapters(STEPS, "03_muon_step", GALLERY),
        *optim("muon_step", "muon_errors", "muon_state"),
    ],
    "optim/pieces.py": [
        *chapters(STEPS, "03_muon_step", GALLERY),
        *optim("muon_step", "muon_state"),
    ],
    "optim/state.py": [
        *chapters(STEPS, "03_muon_step", GALLERY),
        *optim("muon_state", "muon_company"),
    ],
    "optim/checks.py": [*chapters(STEPS, GALLERY), *optim("muon_errors")],
    "optim/convert.py": [
        *chapters(STEPS, "03_muon_step"),
        "tests/optim/test_convert.py",
    ],
    "optim/qk_clip.py": [
        *chapters("08_qk_clip", GALLERY_RANKS),
        "solutions/04_gqa_clip.ipynb",
        *optim("qk_clip", "qk_clip_errors"),
    ],
    "optim/schedule.py": [
        *chapters(STEPS, "09_wsd", GALLERY),
        "solutions/03_rebudget.ipynb",
        "solutions/05_wsd_branch.ipynb",
        *optim("schedule", "schedule_errors"),
    ],
    "optim/kinds.py": [*ROUTED, *optim("routing_kinds", "routing")],
    "optim/linears.py": [*ROUTED, *optim("routing_kinds", "routing")],
    "optim/sighting.py": [*ROUTED, *optim("routing", "routing_models")],
    "optim/routing.py": [*ROUTED, *optim("routing")],
    "optim/build.py": [
        *chapters(STEPS, "03_muon_step", "01_why_muon"),
        *optim("build"),
    ],
    "optim/sharded.py": [*chapters(RANKS), "tests/optim/test_sharded.py"],
    "optim/agree.py": [
        *chapters(RANKS, GALLERY_RANKS),
        "tests/optim/test_sharded_errors.py",
    ],
    "optim/layout.py": [
        *chapters(RANKS, GALLERY_RANKS),
        "tests/optim/test_sharded.py",
        "tests/optim/test_sharded_errors.py",
    ],
    "train/": [*chapters(STEP, RUNS, "09_wsd", RANKS, RUN), "tests/train"],
    "train/checkpoint.py": [
        *chapters(RUNS, "09_wsd", RANKS, RUN),
        *train("checkpoint", "kill"),
    ],
    "train/states.py": [*chapters(RUNS, "09_wsd", RANKS, RUN), *train("checkpoint")],
    "train/data.py": [
        *chapters(RUNS, STEP, "09_wsd"),
        *train("data_batches", "data_shards"),
    ],
    "train/shuffle.py": [*chapters(RUNS, STEP, "09_wsd"), *train("data_shuffle")],
    "train/shards.py": [
        *chapters(RUNS, "09_wsd"),
        *train("data_shards", "data_shards_broken"),
    ],
    "train/writer.py": [
        *chapters(RUNS, "09_wsd"),
        *train("data_sources", "data_shards"),
    ],
    "train/sources.py": [*chapters(RUNS, "09_wsd"), *train("data_sources")],
    "train/tokenizer.py": [*chapters(RUNS, "09_wsd"), *train("data_tokenizers")],
    "train/mix.py": [*chapters(RUNS, "09_wsd"), *train("mix")],
    "train/feed.py": [*chapters(RANKS, STEP), *train("loop", "ranks")],
    "train/step.py": [*chapters(STEP), *train("step", "step_waits")],
    "train/log.py": [*chapters(RUNS, STEP, RUN), *train("log")],
    "train/loop.py": [*chapters(RUNS, "09_wsd", RUN), *train("loop", "loop_branches")],
    "train/resume.py": [*chapters(RUNS, "09_wsd"), *train("loop_branches", "loop")],
    "train/validation.py": [*chapters(RUNS, "09_wsd"), *train("loop", "ranks")],
    "train/recipes.py": [*chapters(STEPS, "05_peak_lr"), *train("recipes", "loop")],
    "train/learns.py": train("learns"),
    "train/presets.py": [*chapters(STEPS), *train("cli")],
    "train/options.py": [*chapters(STEPS), *train("cli")],
    "train/__main__.py": [*chapters(RUNS), *train("cli")],
    "train/lock.py": [*chapters(RUNS), *train("lock")],
    "train/interrupt.py": [*chapters(RUNS), *train("loop", "kill")],
    "train/world.py": [
        *chapters(RANKS, GALLERY_RANKS),
        *train("ranks", "torchrun"),
    ],
    "train/launch.py": [*chapters(RANKS), *train("torchrun", "ranks")],
    "train/lost.py": [*chapters(RANKS), *train("torchrun", "ranks")],
    "bench/": [*chapters("04_flops_and_launches"), "tests/bench"],
    "bench/clusters.py": [*chapters(RANKS), "tests/bench"],
    "bench/collectives.py": [*chapters(RANKS), "tests/bench"],
    "bench/cost_model.py": [*chapters(RANKS), "tests/bench"],
    "bench/per_leaf.py": [
        *chapters(RANKS),
        "tests/properties/test_train.py",
        "tests/bench",
    ],
    "bench/ranks.py": [*chapters(RANKS), "tests/bench"],
    "jax/": [*chapters("14_jax"), "tests/jax"],
    "notebook/": ["tests/notebook"],
    "notebook/toy.py": [*chapters("01_why_muon"), "tests/notebook"],
    "notebook/updates.py": [*chapters("03_muon_step"), "tests/notebook"],
    "notebook/tiers.py": [*chapters("07_measuring_s_max"), "tests/notebook"],
    "notebook/sharding.py": [*chapters(RANKS), "tests/notebook"],
    "notebook/spans.py": [*chapters(RANKS), "tests/notebook"],
    "notebook/gallery.py": [*chapters(GALLERY_RANKS, GALLERY), "tests/notebook"],
    "notebook/logits.py": [*chapters("06_qk_norm"), "tests/notebook"],
    "notebook/clipping.py": [*chapters("08_qk_clip"), "tests/notebook"],
    "notebook/budget.py": [*chapters("12_budget"), "tests/notebook"],
    "notebook/sweep.py": [*chapters("05_peak_lr"), "tests/notebook"],
}
CATCHERS |= {  # a check is asked by the worked answer first
    f"notebook/checks/ex{page.name[:2]}.py": [
        f"solutions/{page.name}",
        "tests/notebook",
    ]
    for page in sorted((ROOT / "solutions").glob("*.ipynb"))
}


def all_faults() -> list[Fault]:
    """Every fault, in the order of the files."""
    parts = (
        *(faults_numbers, faults_rules, faults_model, faults_data),
        *(faults_jax, faults_book, faults_checks),
    )
    return [fault for part in parts for fault in part.FAULTS]
