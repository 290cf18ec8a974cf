"""Faults of the exercises' checks."""

from tests.mutants.faults import Fault

CHECKS = "notebook/checks/"

FAULTS = [
    Fault(
        "the check written with the package's coefficients",
        CHECKS + "plain.py",
        "A, B, C = 3.4445, -4.7750, 2.0315",
        "A, B, C = 3.4445, -4.7550, 2.0315",
    ),
    Fault(
        "exercise 1 counts a step",
        CHECKS + "ex01.py",
        "plain.orthogonalize(matrix, steps)",
        "plain.orthogonalize(matrix, 1)",
    ),
    Fault(
        "exercise 2 takes the sum",
        CHECKS + "ex02.py",
        "matrix.double().square().mean().sqrt()",
        "matrix.double().square().sum().sqrt()",
    ),
    Fault(
        "exercise 3 rounds down",
        CHECKS + "ex03.py",
        "min((low, low + 1), key=",
        "min((low,), key=",
    ),
    Fault(
        "exercise 4 shrinks by the whole",
        CHECKS + "ex04.py",
        "(over / -2).exp().tolist(), (keys / -2)",
        "(over / -1).exp().tolist(), (keys / -2)",
    ),
    Fault(
        "exercise 5 decays by a line",
        CHECKS + "ex05.py",
        "1 - (1 - straight) ** 0.5",
        "straight",
    ),
    Fault(
        "exercise 6 turns the ratio around",
        CHECKS + "ex06.py",
        "return (sigma.max() / sigma.min()).item()",
        "return (sigma.min() / sigma.max()).item()",
    ),
    Fault(
        "exercise 7 forgets epsilon",
        CHECKS + "ex07.py",
        "F.rms_norm(side, (16,), eps=eps)",
        "F.rms_norm(side, (16,), eps=0.0)",
    ),
    Fault(
        "exercise 8 counts one layer",
        CHECKS + "ex08.py",
        "for _ in product(range(L), range(accum)):",
        "for _ in range(accum):",
    ),
    Fault(
        "exercise 9 does not clip",
        CHECKS + "ex09.py",
        "torch.nn.utils.clip_grad_norm_([w], limit)",
        "pass",
    ),
    Fault(
        "exercise 10 takes a matrix that is whole",
        CHECKS + "ex10.py",
        "distribute_tensor(torch.ones(m, n), mesh, [Shard(0)], src_data_rank=None)",
        "distribute_tensor(torch.ones(m, n), mesh, [Shard(1)], src_data_rank=None)",
    ),
    Fault(
        "exercise 11 trusts biases to Muon",
        CHECKS + "ex11.py",
        'name: "adamw" if name.endswith("bias") else roles',
        "name: roles",
    ),
    Fault(
        "exercise 12 forgets the ranks without rows",
        CHECKS + "ex12.py",
        "return found + [(m, m)] * (ranks - len(found))",
        "return found",
    ),
]
