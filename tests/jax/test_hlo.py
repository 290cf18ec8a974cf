"""Counting in HLO text: loops, calls, both notations, asynchronous pairs."""

import jax
import jax.numpy as jnp
import pytest

from stacklm.jax import count_exchanges, format_exchanges

# Shortened from what XLA prints: replica groups in both notations, a loop of five
# turns, a loop inside a called computation, an exchange inside a fusion's neighbour.
TEXT = """\
HloModule jit_f, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (p: f32[16,64], q: f32[64,8]) -> f32[16,8] {
  %p = f32[16,64]{1,0} parameter(0)
  %q = f32[64,8]{1,0} parameter(1)
  ROOT %dot.1 = f32[16,8]{1,0} dot(%p, %q), lhs_contracting_dims={1}
}

%body (t: (s32[], f32[16,64])) -> (s32[], f32[16,64]) {
  %t = (s32[], f32[16,64]{1,0}) parameter(0)
  %g = f32[16,64]{1,0} get-tuple-element(%t), index=1
  %all-gather.1 = f32[64,64]{1,0} all-gather(%g), \
replica_groups=[1,4]<=[4], dimensions={0}, metadata={op_name="dot(b), all-reduce(c)"}
  %f = f32[16,8]{1,0} fusion(%g, %all-gather.1), kind=kOutput, calls=%fused
  ROOT %out = (s32[], f32[16,64]{1,0}) tuple(%g, %g)
}

%cond (t.1: (s32[], f32[16,64])) -> pred[] {
  %t.1 = (s32[], f32[16,64]{1,0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (a: f32[16,64]) -> f32[16,64] {
  %a = f32[16,64]{1,0} parameter(0)
  %w = (s32[], f32[16,64]{1,0}) while(%a), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %r = (f32[1]{0}, f32[3]{0}) all-reduce(%a, %a), replica_groups={{0,1},{2,3}}, \
to_apply=%add
  %s = (f32[4,2]{1,0}, bf16[8,2]{1,0}) all-gather-start(%a), dimensions={0}
  %d = bf16[8,2]{1,0} all-gather-done(%s)
  ROOT %p = f32[16,64]{1,0} collective-permute(%a), source_target_pairs={{0,1}}
}
"""


ALONE = """\
ENTRY %m (a: f32[2]) -> f32[2] {
  ROOT %a = f32[2]{0} parameter(0)
}
"""


def test_written_and_executed_differ_by_the_turns_of_the_loop():
    found = count_exchanges(TEXT)
    assert found.written == {"all-gather": 2, "all-reduce": 1, "collective-permute": 1}
    assert found.executed == {"all-gather": 6, "all-reduce": 1, "collective-permute": 1}
    assert (found.in_loops, found.loops) == (1, 1)


def test_bytes_are_those_of_results_and_of_every_turn():
    gathered, reduced, permuted = 5 * 64 * 64 * 4, (1 + 3) * 4, 16 * 64 * 4
    begun = 8 * 2 * 2  # the result of an asynchronous pair, not its input
    assert count_exchanges(TEXT).bytes == gathered + reduced + permuted + begun


def test_products_inside_fusions_inside_loops_count():
    assert count_exchanges(TEXT).dot_flops == 5 * 2 * 16 * 8 * 64


def test_shapes_may_stand_in_operands():
    text = TEXT.replace("dot(%p, %q)", "dot(f32[16,64]{1,0} %p, f32[64,8]{1,0} %q)")
    assert count_exchanges(text).dot_flops == count_exchanges(TEXT).dot_flops


def test_a_loop_without_a_known_number_of_turns_is_refused_if_it_matters():
    with pytest.raises(ValueError, match="loop over body does not say how often"):
        count_exchanges(TEXT.replace("known_trip_count", "unknown"))
    harmless = TEXT.replace("body=%body", "body=%cond").replace(
        "known_trip_count", "no"
    )
    assert count_exchanges(harmless).in_loops == 0


def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        count_exchanges("func.func @main() { return }")


def test_a_real_program_is_counted_as_arithmetic_says():
    def f(x):
        return jax.lax.scan(lambda x, _: (x @ x, None), x, length=7)[0]

    compiled = jax.jit(f).lower(jnp.ones((12, 12))).compile()
    found = count_exchanges(compiled.as_text())
    assert found.dot_flops == 7 * 2 * 12**3
    assert (found.written, found.loops) == ({}, 1)


def test_the_table_names_what_it_counts():
    found = count_exchanges(TEXT)
    lines = format_exchanges({"first": found, "a second": found}).splitlines()
    assert lines[0].split() == ["written", "in", "loops", "executed", "MiB", "MFLOP"]
    assert lines[1].split() == ["first", "4", "1", "8", "0.1", "0"]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[3] == "first: 2 all-gather, 1 all-reduce, 1 collective-permute"
    only = count_exchanges(ALONE)
    assert format_exchanges({"none": only}).endswith("none: no collectives")
