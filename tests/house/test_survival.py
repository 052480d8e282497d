"""What agents and those who run many of them must survive: each row by name, with the tests that hold it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TURNS, FUNCTIONS, TOOL, RESULT = (
    "live/test_tool_turns",
    "live/test_functions",
    "declare/test_tool",
    "declare/test_tool_result",
)
RETURNS, CONTENT, TYPED, PEOPLE = "declare/test_returns", "declare/test_content", "live/test_typed", "live/test_people"
FLOW, SERVERS, WEB = "live/test_flow", "live/test_mcp", "live/test_mcp_http"
DIE, WORKERS, SCALING = "providers/test_workers_die", "providers/test_workers", "providers/test_scaling"
NEIGHBOURS = "live/test_neighbours"
KERNELS, RUNS = "providers/test_kernels_die", "providers/test_workers_run"
LATE = "providers/test_workers_late"
SENT, EACH, WORKING, DYING = "live/test_content", "measure/test_each", "record/test_working", "record/test_dying_tools"
ROWS: dict[str, dict[str, str]] = {
    "tools": {
        "a function that is redefined or deleted before the run": f"{TURNS}::a_function_that_is_redefined_or_deleted",
        "two functions of one name": "notebook/test_tools::the_function_counts_that_has_the_name",
        "two tools of one name in one agent": f"{TOOL}::two_tools_of_one_name",
        "names that are not ASCII": "notebook/test_tools::a_tool_needs_a_name_that_a_request_can_hold",
        "steps whose names are not ASCII": "notebook/test_tools::steps_may_have_any_letters",
        "names that are too long": f"{TOOL}::long_names_are_refused",
        "no docstring": f"{TOOL}::a_missing_docstring_warns",
        "results of every kind, lone surrogates": f"{TURNS}::results_of_every_kind_go_out",
        "a result of 50 MB": f"{TURNS}::a_result_of_fifty_megabytes",
        "secrets in results": f"{FUNCTIONS}::no_key_goes_out_in_a_result",
        "secrets in exceptions of tools": f"{TURNS}::no_secret_goes_out_in_an_error",
        "secrets in exceptions of tasks": "live/test_task_steps::no_secret_of_a_task_s_error",
        "StopIteration, SystemExit": f"{TURNS}::whatever_a_function_raises",
        "the same on every thread and process": f"{FUNCTIONS}::whatever_is_raised_is_a_result",
        "a hang": f"{TURNS}::a_call_that_hangs",
        "floods of prints": f"{TURNS}::a_flood_of_prints",
        "prints in no other cell": "kernel/test_tasks_kernel::a_run_in_the_background_prints_into_no_other_cell",
        "a cut call": f"{TURNS}::a_call_that_was_cut_never_runs",
        "broken JSON": f"{TURNS}::arguments_that_are_no_json",
        "no arguments": f"{TURNS}::no_arguments_are_an_empty_object",
        "an unknown tool": f"{TURNS}::unknown_tools_and_unreadable_calls",
        "30 calls in a reply, one fails": f"{TURNS}::thirty_calls_of_which_one_fails",
        "the same call again and again": f"{TURNS}::the_same_call_again_and_again",
        "one turn is one request": f"{TURNS}::one_turn_is_one_request",
        "Stop in the middle of a tool": f"{TURNS}::a_stop_in_the_middle_of_a_tool",
        "Stop in the middle of a task, once and twice": "kernel/test_tasks_kernel::stop_ends_a_task_that_hangs",
        "a tool of which no call succeeds": "show/test_failed_calls::a_tool_no_call_of_which_succeeded",
        "kill -9 in each gap: no turn twice": f"{DYING}::no_finished_turn_is_bought_twice",
        "kill -9 in each gap: no unsafe call twice": f"{DYING}::no_call_is_repeated_that_may_have_happened",
        "a kill after a person's edit": f"{PEOPLE}::a_call_that_was_changed_and_done_before_a_kill",
        "a stream lost in turn 5": f"{TURNS}::a_stream_lost_in_turn_five",
        "429 in turn 7": f"{TURNS}::a_429_in_turn_seven",
        "the budget in turn 7": f"{TURNS}::a_budget_that_is_reached_in_turn_seven",
        "an empty end_turn": f"{TURNS}::an_empty_end_after_results",
        "a refusal in turn 3": f"{TURNS}::a_refusal_in_turn_three",
        "pause_turn beside a call of ours": f"{TURNS}::a_pause_beside_a_call_of_ours",
        "%%agent run again in the middle of a loop": "kernel/test_tools_kernel::a_cell_that_is_run_again_in_the_middle",
        "a prefix that was changed": f"{TURNS}::a_broken_prefix_is_named_and_not_tried_again",
        "bodies are append-only": f"{TURNS}::every_request_appends_to_the_one_before",
        "any order of results, failures, cuts, stops": "engine/test_conversations::the_laws_of_conversations_hold",
        "a model without tools": f"{TURNS}::a_model_without_tools",
        "a replay without function, class, database, key": f"{WORKING}::it_replays_where_nothing_of_it_is",
        "a recording that is damaged": f"{WORKING}::a_line_of_a_conversation_that_is_cut_or_flipped",
        "a recording of another task": "live/test_task_steps::a_recording_of_other_code_or_of_other_values",
        "a recording without texts": f"{WORKING}::without_texts_nothing_of_a_tool_run_is_left",
        "a ledger whose first page is destroyed": "record/test_store::calls_outlive_a_destroyed_first_page",
        "a forecast at another concurrency": "forecast/test_tools::a_forecast_of_tools_at_another_concurrency",
    },
    "typed": {
        "enums in any case": f"{TYPED}::words_come_in_any_case",
        "half a document, a refusal": f"{TYPED}::half_an_answer_is_no_value",
        "25 optional or 17 union fields": f"{RETURNS}::the_limits_of_a_request",
        "dict, Any, tuple, recursion": f"{RETURNS}::what_no_schema_holds_is_asked_for_in_words",
        "a class edited after the run": "notebook/test_typed::a_class_that_was_edited_after_a_run",
        "a class edited before the run": "notebook/test_typed::a_class_that_was_run_again_counts",
        "a field of a parent that failed": f"{TYPED}::the_second_time_is_the_last",
        "columns without a value": f"{EACH}::dtypes_are_those_of_the_schema",
        "no row is lost": f"{EACH}::a_row_is_never_lost",
        "validators that raise anything": f"{RETURNS}::validators_may_raise_anything",
    },
    "content": {
        "a closed or empty figure": f"{CONTENT}::what_is_no_picture_is_refused",
        "a figure that changed after declaring": f"{SENT}::a_figure_counts_as_it_is_when_the_plan_is_frozen",
        "CMYK": f"{CONTENT}::pictures_of_every_mode_are_sent",
        "21 large pictures": f"{SENT}::nothing_is_sent_that_is_too_large",
        "21 large pictures, of several turns": "live/test_returned_pictures::more_pictures_than_a_conversation_holds",
        "32 MB": f"{CONTENT}::what_cannot_be_is_refused_before_anything_is_sent",
        "32 MB, of several turns": "live/test_returned_pictures::a_conversation_of_32_mb",
        "a picture for 1,000 rows": f"{SENT}::a_picture_of_many_rows_is_kept_once",
        "filters over a picture": f"{CONTENT}::what_a_filter_leaves_of_a_picture",
        "the mark of a picture in a model's text": f"{SENT}::a_model_forges_no_picture",
        "citations with a type": "notebook/test_content::a_cell_that_cites_has_no_type",
    },
    "flow": {
        "a condition on a field that is not there": "declare/test_flow::a_condition_s_names_are_edges",
        "a condition on what was skipped": f"{FLOW}::a_condition_that_is_false_is_no_failure",
        "a map over nothing": f"{FLOW}::a_map_over_nothing",
        "a map over more than its places": f"{FLOW}::a_map_over_more_than_its_places",
        "a critic that fails": f"{FLOW}::a_critic_that_fails",
        "one round": f"{FLOW}::one_round_is",
        "a prompt that is empty without a step": f"{FLOW}::a_prompt_that_is_empty_without_a_step",
        "what was done is not bought again": f"{FLOW}::the_next_run_buys_nothing",
        "a field that no answer has, in a cell": "notebook/test_typed::a_cell_that_takes_what_no_answer_has_is_refused",
        "kill -9 in the middle of a loop and of a map": "record/test_dying_flow::a_kill_between_two_answers_buys",
        "plans in plans multiply no 429s": "live/test_subplan_runs::nesting_multiplies_no_refusals",
        "loops, maps, conditions, boxes are seen": "browser/test_flow::loops_maps_conditions_and_boxes_say_what",
        "any plan, failures too": "live/test_flow_runs::a_run_does_what_a_straight_reading_says",
        "forecasts and replays": "live/test_flow_runs::a_forecast_and_a_replay_decide_the_same",
    },
    "people": {
        "nobody at the keyboard": f"{PEOPLE}::nobody_is_there",
        "a program that runs the cells": "kernel/test_saved_notebook::a_program_that_runs_the_cells",
        "a console without buttons": "kernel/test_asking_console::a_console_is_not_waited_for",
        "nobody in time": f"{PEOPLE}::nobody_answers_in_time",
        "a nod after the run was stopped": f"{PEOPLE}::a_stop_closes_the_questions",
        "two tabs": "browser/test_asking::two_tabs_show_the_same",
        "the first answer counts": f"{PEOPLE}::the_first_answer_counts",
    },
    "servers of tools": {
        "one that does not start": f"{SERVERS}::why_it_did_not_start_is_told",
        "one that dies in a call": f"{SERVERS}::a_server_that_dies_in_a_call",
        "one that hangs": f"{SERVERS}::a_call_that_hangs_is_given_up",
        "prints that are no message": f"{SERVERS}::what_a_server_prints_beside_its_messages",
        "500 tools": "notebook/test_mcp::a_server_of_five_hundred_tools",
        "tools that change in the middle of a run": f"{SERVERS}::tools_that_are_others_now",
        "a kernel that is killed leaves no server": f"{SERVERS}::a_server_ends_with_a_process_that_is_killed",
        "at an address: its session is lost": f"{WEB}::a_lost_session_is_opened_again",
        "at an address: it restarts, or is gone": f"{WEB}::a_server_that_is_gone",
        "at an address: an answer is cut": f"{WEB}::a_call_that_is_cut_may_have_happened",
        "at an address: answers of no sense, or far too large": f"{WEB}::answers_that_are_none",
        "at an address: it redirects elsewhere": f"{WEB}::headers_go_to_no_other_host",
        "at an address: it repeats the key": f"{WEB}::headers_appear_nowhere",
    },
    "past one kernel": {
        "a worker is killed, or asked to end": f"{DIE}::requests_of_a_dead_worker_fail",
        "workers are killed at random instants, in rounds": f"{DIE}::workers_that_are_killed_at_random_instants",
        "what was lost is asked again by the policy only": f"{DIE}::the_retry_policy_decides",
        "a worker hangs, or its network is cut": f"{DIE}::a_worker_that_hangs",
        "a hung worker that goes on: its answers are taken": f"{DIE}::what_a_lost_worker_says_later_is_used",
        "the same where its agent had failed for good": f"{RUNS}::an_answer_of_a_worker_that_was_given_up_is_taken",
        "what was sent again ends with the late answer": f"{RUNS}::an_answer_that_comes_late_ends_the_request",
        "what comes late ends with an answer that came first": f"{RUNS}::a_request_that_was_sent_again_and_answered",
        "silence, deaths, late answers, limits and Stop in drawn orders, in memory": f"{LATE}::whatever_workers_do",
        "silence while the kernel itself is held up": f"{WORKERS}::silence_counts_only_while_the_kernel_is_awake",
        "a cell holds the kernel's loop up": f"{DIE}::a_blocked_loop_loses_nothing",
        "the kernel is killed: nothing more is spent, no process is left": f"{KERNELS}::a_killed_kernel_stops_spending",
        "the kernel is killed: the next run knows what may be paid": f"{KERNELS}::the_run_after_a_killed_kernel",
        "the scheduler is killed, or asked to end": f"{KERNELS}::a_dead_scheduler_repeats_nothing",
        "the scheduler is gone with all workers: the run ends": f"{WORKERS}::a_scheduler_that_is_gone",
        "all workers are gone: nothing was sent": f"{WORKERS}::where_no_worker_comes_nothing_was_sent",
        "a stranger retires the workers": f"{KERNELS}::strangers_who_scale_lose_nothing",
        "a stranger scales by itself": f"{KERNELS}::adaptive_scaling_by_a_stranger",
        "an interrupt": f"{KERNELS}::an_interrupt_of_a_kernel_leaves_its_workers",
        "scaling down": f"{SCALING}::a_worker_that_is_too_many_finishes_its_streams",
        "a connection cut after any message": f"{WORKERS}::a_connection_cut_after_any_message",
        "an answer of 10 MB": f"{DIE}::a_large_answer_comes_whole",
        "a worker of another version": f"{WORKERS}::a_worker_of_another_version",
        "a worker without a key": f"{WORKERS}::a_worker_without_a_key",
        "keys and prompts in logs, state and pages": f"{DIE}::no_key_and_no_prompt_is_left",
        "who listens": f"{DIE}::nothing_listens_beyond_this_machine",
        "a batch, and the kernel is killed": "live/test_dying_batches::killed_at_every_step",
        "two kernels on one limit": f"{NEIGHBOURS}::two_kernels_share_a_limit",
        "one of them is killed": f"{NEIGHBOURS}::what_a_killed_kernel_had",
        "a limit of a few requests a minute": "engine/test_pacer_shares::kernels_divide_a_limit_of_a_few_requests",
        "refusals of no limit": "engine/test_pacer_world::refusals_without_a_limit_cost_little",
        "a hundred agents at once, with faults": "live/test_soak::a_hundred_agents_at_once",
    },
}


@pytest.mark.parametrize("place", sorted({name for rows in ROWS.values() for name in rows.values()}))
def test_each_row_has_its_test(place: str) -> None:
    """A test that is renamed or taken out takes its row along, or says which one holds it now."""
    path, _, start = place.partition("::")
    tree = ast.parse((TESTS / f"{path}.py").read_text())
    names = [one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert 1 == sum(name.startswith(f"test_{start}") for name in names), names


def test_the_page_of_failures_names_the_tests() -> None:
    """What a reader is told of workers and kernels that die is held by the tests that the page names."""
    page = (TESTS.parent / "docs" / "concepts" / "failures.md").read_text()
    told = dict(re.findall(r"^\| (.+) \| `(\w+/\w+::test_\w+)` \|$", page, re.MULTILINE))
    assert list(ROWS["past one kernel"]) == list(told)
    for row, place in ROWS["past one kernel"].items():
        path, _, start = place.partition("::")
        assert told[row].startswith(f"{path}::test_{start}")
        source = (TESTS / f"{path}.py").read_text()
        assert f"def {told[row].partition('::')[2]}(" in source, row
