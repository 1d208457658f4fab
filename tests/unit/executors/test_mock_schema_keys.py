"""Every key that a mock block may have has a test that shows its effect."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from toolcrib.executors.mock import MockExecutor

SHOWN_BY = {
    "after_last": "rules:test_a_sequence_answers_one_reply_a_call",
    "check.checks": "guards:test_checks_of_one_loop_go_element_by_element_and_separate_guards_rule_by_rule",
    "check.error": "guards:test_the_first_guard_that_is_true_answers",
    "check.for_each": "guards:test_a_guard_may_ask_for_each_element_and_the_first_that_is_true_answers",
    "check.if": "guards:test_the_first_guard_that_is_true_answers",
    "check.let": "guards:test_a_guard_may_ask_for_each_element_and_the_first_that_is_true_answers",
    "crud.create": "crud:test_create_takes_the_key_from_the_call",
    "crud.cursor": "crud:test_list_goes_on_from_a_cursor",
    "crud.delete": "crud:test_delete_answers_the_row_as_it_was",
    "crud.get": "crud:test_get_answers_a_row_or_its_error",
    "crud.guard": "crud:test_get_may_look_for_fields_and_be_guarded",
    "crud.id": "crud:test_create_makes_a_key_up_by_a_rule_and_the_row_is_the_arguments",
    "crud.key": "crud:test_create_takes_the_key_from_the_call",
    "crud.limit": "crud:test_list_ends_at_a_limit",
    "crud.list": "crud:test_list_answers_all_rows_in_their_order",
    "crud.missing": "crud:test_get_answers_a_row_or_its_error",
    "crud.set": "crud:test_update_sets_keys_or_replaces_the_row",
    "crud.update": "crud:test_update_sets_keys_or_replaces_the_row",
    "crud.value": "crud:test_update_sets_keys_or_replaces_the_row",
    "crud.where": "crud:test_list_keeps_the_rows_whose_fields_equal_the_arguments_that_are_given",
    "effect.after": "delayed:test_an_effect_is_applied_at_its_time_with_the_values_of_its_call",
    "effect.append": "effects:test_append_puts_a_value_at_the_end",
    "effect.by": "effects:test_numbers_are_raised_and_lowered_and_rounded_as_python_rounds",
    "effect.decrement": "effects:test_numbers_are_raised_and_lowered_and_rounded_as_python_rounds",
    "effect.delete": "effects:test_delete_takes_out_a_row_a_key_an_element",
    "effect.do": "effects:test_do_happens_under_one_loop_and_condition",
    "effect.error": "decided_errors:test_the_effects_before_an_error_are_undone",
    "effect.first": "effects:test_first_means_the_first_element_that_now_fits",
    "effect.for_each": "effects:test_a_loop_reads_its_list_before_it_begins",
    "effect.goto": "effects:test_goto_moves_named_states",
    "effect.if": "effects:test_an_effect_may_have_a_condition_and_each_sees_those_before_it",
    "effect.increment": "effects:test_numbers_are_raised_and_lowered_and_rounded_as_python_rounds",
    "effect.insert": "effects:test_insert_puts_a_row_under_its_key",
    "effect.keep": "decided_errors:test_kept_effects_remain_and_later_ones_do_not_happen",
    "effect.key": "effects:test_insert_puts_a_row_under_its_key",
    "effect.let": "effects:test_do_happens_under_one_loop_and_condition",
    "effect.round": "effects:test_numbers_are_raised_and_lowered_and_rounded_as_python_rounds",
    "effect.set": "effects:test_update_replaces_the_keys_of_set_and_leaves_others_where_they_are",
    "effect.update": "effects:test_update_replaces_the_keys_of_set_and_leaves_others_where_they_are",
    "effect.upsert": "effects:test_upsert_replaces_or_adds_a_row",
    "effect.value": "effects:test_append_puts_a_value_at_the_end",
    "effect.where": "effects:test_where_means_all_elements_that_fit",
    "error_object.code": "replies:test_an_error_has_a_code_message_status_details_and_whether_to_try_again",
    "error_object.details": "replies:test_an_error_has_a_code_message_status_details_and_whether_to_try_again",
    "error_object.message": "replies:test_the_message_of_an_error_is_its_code_unless_given",
    "error_object.retryable": "replies:test_an_error_has_a_code_message_status_details_and_whether_to_try_again",
    "error_object.status": "replies:test_an_error_has_a_code_message_status_details_and_whether_to_try_again",
    "generate.examples": "replies:test_examples_of_the_schema_may_be_ignored",
    "generate.overlay": "replies:test_an_overlay_is_put_over_what_is_generated",
    "injected_kind.disconnect": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.duplicate_delivery": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.empty": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.error": "injected:test_an_error_reads_the_call",
    "injected_kind.hang": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.inject_text": "injected:test_a_text_is_planted_in_what_the_tool_could_answer",
    "injected_kind.lost_ack": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.not_json": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.rate_limit": "injected:test_a_reply_above_its_limit_waits_for_its_turn_where_it_may_be_tried_again",
    "injected_kind.slow": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.stale": "injected:test_a_reply_has_nothing_stale_to_answer",
    "injected_kind.timeout": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.truncated": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "injected_kind.violate_schema": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "latency_curve.max": "pacing:test_a_curve_may_have_a_longest",
    "latency_curve.median": "pacing:test_a_curve_keeps_its_median_and_its_tail",
    "latency_curve.p99": "pacing:test_a_curve_keeps_its_median_and_its_tail",
    "latency_range.max": "pacing:test_a_range_is_drawn_evenly",
    "latency_range.min": "pacing:test_a_range_is_drawn_evenly",
    "part.data": "content:test_a_part_is_what_its_entry_says",
    "part.file": "content:test_a_part_is_what_its_entry_says",
    "part.mime_type": "content:test_a_part_is_what_its_entry_says",
    "part.text": "content:test_a_part_is_what_its_entry_says",
    "part.title": "content:test_a_part_is_what_its_entry_says",
    "part.type": "content:test_a_part_is_what_its_entry_says",
    "part.uri": "content:test_a_part_is_what_its_entry_says",
    "planted.at": "injected:test_a_text_is_planted_in_what_the_tool_could_answer",
    "planted.text": "injected:test_a_text_is_planted_in_what_the_tool_could_answer",
    "progress.after": "pacing:test_waits_of_progress_and_the_latency_add_up",
    "progress.message": "pacing:test_progress_arrives_in_order_after_its_waits",
    "progress.progress": "pacing:test_progress_arrives_in_order_after_its_waits",
    "progress.total": "pacing:test_progress_arrives_in_order_after_its_waits",
    "rate_limit.limit": "injected:test_a_reply_above_its_limit_waits_for_its_turn_where_it_may_be_tried_again",
    "rate_limit.per": "injected:test_a_reply_above_its_limit_waits_for_its_turn_where_it_may_be_tried_again",
    "reply.content": "content:test_parts_stand_beside_any_reply_or_alone",
    "reply.crud": "crud:test_crud_stands_for_a_reply",
    "reply.effects": "effects:test_an_effect_may_have_a_condition_and_each_sees_those_before_it",
    "reply.error": "replies:test_an_error_may_be_one_text",
    "reply.fault": "injected:test_a_reply_may_be_a_fault_of_any_kind",
    "reply.generate": "replies:test_what_is_generated_fits_the_schema_and_is_stable_for_arguments_and_seed",
    "reply.guard": "guards:test_the_first_guard_that_is_true_answers",
    "reply.idempotent_by": "idempotent:test_the_same_key_again_answers_the_same_and_changes_nothing",
    "reply.latency": "pacing:test_a_fixed_latency_is_waited",
    "reply.let": "lets:test_a_let_is_a_value_from_before_the_changes",
    "reply.passthrough": "passthrough:test_the_other_binding_answers",
    "reply.progress": "pacing:test_progress_arrives_in_order_after_its_waits",
    "reply.result": "replies:test_a_result_is_answered_as_it_is_written",
    "reply.result_file": "replies:test_a_result_file_is_data_and_is_never_rendered",
    "reply.rows": "rows:test_a_row_is_always_as_it_is_now_and_its_key_stays",
    "reply.template": "replies:test_a_template_that_is_json_text_becomes_its_value",
    "reply.template_file": "replies:test_a_template_file_is_read_once_and_may_hold_statements",
    "reply.times": "times:test_a_reply_answers_so_many_calls",
    "row.in": "rows:test_a_row_may_lie_in_an_object_or_list_of_an_earlier_row",
    "row.key": "rows:test_a_row_is_found_by_its_key",
    "row.missing": "rows:test_a_missing_row_answers_its_error_in_written_order_before_any_guard",
    "row.where": "rows:test_the_first_row_that_fits_is_found",
    "rule.after_last": "rules:test_a_rule_may_have_a_list_of_replies",
    "rule.name": "rules:test_the_reply_that_answered_is_told_in_the_meta",
    "rule.reply": "rules:test_each_rule_counts_the_calls_that_it_answers",
    "rule.when": "rules:test_all_that_a_rule_asks_for_must_hold",
    "rules": "rules:test_the_first_rule_that_matches_answers",
    "sequence": "rules:test_a_sequence_answers_one_reply_a_call",
    "when.args": "rules:test_the_first_rule_that_matches_answers",
    "when.call": "rules:test_a_rule_may_look_at_the_number_of_the_call",
    "when.if": "rules:test_all_that_a_rule_asks_for_must_hold",
    "when.state": "state_rules:test_a_rule_answers_in_its_states_only",
}
"""Key of the block's schema (under the name of its definition) -> test module and test."""


def keys() -> set[str]:
    """Every key of the schema; those of a reply once."""
    schema: Any = MockExecutor().block_schema
    own = {key for key, value in schema["properties"].items() if "$ref" not in value}
    defined = {
        f"{name}.{key}" for name, part in schema["$defs"].items() for key in part.get("properties", {})
    }
    return own | defined


def test_every_key_of_the_schema_is_shown_by_a_test():
    assert set(SHOWN_BY) == keys()


@pytest.mark.parametrize("shown_by", sorted(set(SHOWN_BY.values())))
def test_the_test_that_is_named_is_there(shown_by):
    module, _, name = shown_by.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"test_mock_{module}.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_block_takes_every_key_of_a_reply():
    schema: Any = MockExecutor().block_schema
    for key, reply in schema["$defs"]["reply"]["properties"].items():
        assert schema["properties"][key] == {"$ref": f"#/$defs/reply/properties/{key}"}, key
        assert reply["title"]
        assert reply["description"]
