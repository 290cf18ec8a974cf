"""Seeded faults: does a notebook cell or a test notice?"""

from tests.mutants import faults_data, faults_model, faults_numbers, faults_rules
from tests.mutants.faults import Fault


def chapters(*names: str) -> list[str]:
    """Paths of chapters, by name."""
    return [f"chapters/{name}.ipynb" for name in names]


RUN = chapters("10_complete_step", "11_real_run")
# Who is asked about a fault in a file: the longest prefix counts; notebooks first.
CATCHERS: dict[str, list[str]] = {
    "": ["tests/notebook", "tests/optim", "tests/train"],
    "config.py": [*chapters("12_budget", "01_why_muon"), "tests/test_config.py"],
    "_counts.py": [*chapters("12_budget", "01_why_muon"), "tests/test_config.py"],
    "_checks.py": ["tests/test_config.py", "tests/train"],
    "model/attention.py": [
        *chapters("06_qk_norm", "07_measuring_s_max"),
        "tests/model",
    ],
    "model/scores.py": [*chapters("07_measuring_s_max", "08_qk_clip"), "tests/model"],
    "model/records.py": [*chapters("07_measuring_s_max", "06_qk_norm"), "tests/model"],
    "model/transformer.py": [
        *chapters("06_qk_norm", "10_complete_step", "01_why_muon"),
        "tests/model",
    ],
    "optim/": ["tests/optim"],
    "optim/newton_schulz.py": [
        *chapters("02_newton_schulz", "03_muon_step", "04_flops_and_launches"),
        "tests/optim",
    ],
    "optim/gram.py": [*chapters("04_flops_and_launches"), "tests/optim"],
    "optim/symmetric.py": [*chapters("04_flops_and_launches"), "tests/optim"],
    "optim/plan.py": [*chapters("04_flops_and_launches"), "tests/optim"],
    "optim/muon.py": [*chapters("03_muon_step", "01_why_muon"), "tests/optim"],
    "optim/pieces.py": [*chapters("03_muon_step", "01_why_muon"), "tests/optim"],
    "optim/state.py": [*chapters("03_muon_step"), "tests/optim"],
    "optim/qk_clip.py": [
        *chapters("08_qk_clip"),
        "solutions/04_gqa_clip.ipynb",
        "tests/optim",
    ],
    "optim/schedule.py": [
        *chapters("09_wsd"),
        "solutions/03_rebudget.ipynb",
        "tests/optim",
    ],
    "optim/kinds.py": [*chapters("01_why_muon"), "tests/optim"],
    "optim/linears.py": [*chapters("01_why_muon"), "tests/optim"],
    "optim/sighting.py": [*chapters("01_why_muon"), "tests/optim"],
    "optim/routing.py": [*chapters("01_why_muon"), "tests/optim"],
    "optim/sharded.py": ["tests/optim/test_sharded.py", "tests/optim"],
    "optim/agree.py": ["tests/optim/test_sharded_errors.py"],
    "optim/layout.py": ["tests/optim/test_sharded.py", "tests/optim"],
    "optim/build.py": [*chapters("03_muon_step", "01_why_muon"), "tests/optim"],
    "train/": [*RUN, "tests/train"],
    "train/world.py": ["tests/train/test_ranks.py", "tests/train/test_torchrun.py"],
    "train/mix.py": [*chapters("09_wsd"), "tests/train"],
    "train/presets.py": ["tests/train"],
    "bench/": [*chapters("04_flops_and_launches"), "tests/bench"],
    "notebook/toy.py": [*chapters("01_why_muon"), "tests/notebook"],
    "notebook/updates.py": [*chapters("03_muon_step"), "tests/notebook"],
    "notebook/tiers.py": [*chapters("07_measuring_s_max"), "tests/notebook"],
}


def all_faults() -> list[Fault]:
    """Every fault, in the order of the files."""
    parts = (faults_numbers, faults_rules, faults_model, faults_data)
    return [fault for part in parts for fault in part.FAULTS]
