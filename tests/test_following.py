"""Right work on a wrong tool is told apart and earns up to half; a tool made wrong on purpose gains nothing."""

from types import FunctionType

import numpy as np

from autograder.exercises import all_exercises
from autograder.judge import in_this_process, judge, judge_function
from autograder.sheets import own_function
from course.answering import answer_question

EXERCISES = all_exercises()
REFERENCES = {name: exercise.reference_function for name, exercise in EXERCISES.items()}
LAYER_NORM, BLOCK = REFERENCES["layer_norm"], EXERCISES["encoder_block"]


def block_on(layer_norm):
    """A right block that calls this layer norm."""
    right = BLOCK.reference_function
    return FunctionType(right.__code__, {**right.__globals__, "layer_norm": layer_norm}, right.__name__)


def followed(block, **tools):
    mine = {**REFERENCES, **tools}

    def ask_tool(name, question):
        return answer_question(mine[name], question, own_function, EXERCISES[name].parameters)

    return judge(BLOCK, 5, in_this_process(BLOCK, block), ask_tool)


def no_beta_in_batches(x, gamma, beta, eps=1e-5):
    return LAYER_NORM(x, gamma, 0 * beta if np.ndim(x) > 2 else beta, eps)


def nothing_in_batches(x, gamma, beta, eps=1e-5):
    return x if np.ndim(x) > 2 else LAYER_NORM(x, gamma, beta, eps)


def zeros_in_batches(x, gamma, beta, eps=1e-5):
    return 0 * x if np.ndim(x) > 2 else LAYER_NORM(x, gamma, beta, eps)


def points_of_the_tool(layer_norm):
    return judge_function(EXERCISES["layer_norm"], 5, layer_norm).points


def test_a_right_block_on_a_wrong_norm_earns_up_to_half_and_is_told():
    assert points_of_the_tool(no_beta_in_batches) * 2 >= EXERCISES["layer_norm"].points
    block = block_on(no_beta_in_batches)
    alone = judge_function(BLOCK, 5, block)
    verdict = followed(block, layer_norm=no_beta_in_batches)
    assert alone.points < verdict.points <= BLOCK.points / 2
    assert verdict.mistake == "wrong-tool"
    assert "right for the layer_norm you gave it" in verdict.cause


def test_a_wrong_block_on_a_wrong_norm_gains_nothing():
    def block(x, *args, **kwargs):
        return block_on(no_beta_in_batches)(x, *args, **kwargs) + x

    verdict = followed(block, layer_norm=no_beta_in_batches)
    assert (verdict.points, verdict.mistake == "wrong-tool") == (0, False)


def test_a_norm_made_wrong_on_purpose_gains_nothing():
    for tool in (nothing_in_batches, zeros_in_batches):
        assert points_of_the_tool(tool) * 2 >= EXERCISES["layer_norm"].points
        block = block_on(tool)
        assert followed(block, layer_norm=tool).points == judge_function(BLOCK, 5, block).points


def test_a_norm_worth_less_than_half_gives_no_follow_through():
    wrong = next(m.function for m in EXERCISES["layer_norm"].mistakes if m.id == "variance-d-1")
    assert points_of_the_tool(wrong) * 2 < EXERCISES["layer_norm"].points
    block = block_on(wrong)
    verdict, alone = followed(block, layer_norm=wrong), judge_function(BLOCK, 5, block)
    assert (verdict.points, verdict.mistake, verdict.cause) == (alone.points, alone.mistake, alone.cause)


def test_a_wrong_norm_is_told_apart_from_a_wrong_block_also_without_marks():
    def far_off_eps(x, gamma, beta, eps=1e-3):
        return LAYER_NORM(x, gamma, beta, eps + 1e-3)

    assert points_of_the_tool(far_off_eps) * 2 < EXERCISES["layer_norm"].points
    block = block_on(far_off_eps)
    verdict = followed(block, layer_norm=far_off_eps)
    assert verdict.points == judge_function(BLOCK, 5, block).points
    assert "right for the layer_norm you gave it" in verdict.cause


def test_right_tools_leave_the_verdict_as_it_is():
    def block(x, *args, **kwargs):
        return x

    verdict = followed(block)
    assert (verdict.points, verdict.mistake == "wrong-tool") == (0, False)
