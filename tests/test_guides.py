"""The five guides row by row: each works, or is corrected where the user sees it.

Rows are those of the audit: M the guide to Modal's cards, H the one to Hugging Face's
machines, S the speed guide, C the cluster guide, V the design (its fourth version). What
shows a row is a test elsewhere, a command (after $) or a page (after @) and what it says.
"""
import ast
import functools
import shlex
from pathlib import Path

import pytest

from mabe_nb import cli

ROWS = """
M1 works test_catalog::test_modal_guide_table
M2 corrected $ mabe gpus --provider modal ~ 0.59 & 2026-08-30
M2b corrected test_catalog::test_a_price_without_a_date_is_undated_and_stale
M3 corrected $ mabe advise --scenario train ~ undated relative speeds, not this model
M4 works $ mabe gpus ~ suits & small models, demos
M5 corrected $ mabe gpus --guide --provider modal ~ H100 & False
M6 works test_presets::test_the_large_preset_is_the_model_of_the_guide
M7 corrected $ mabe estimate --preset large --card T4 ~ batch 32 of 100 frames needs & yes
M8 works test_presets::test_the_large_preset_is_the_model_of_the_guide
M9 works test_advise::test_hundred_epochs
M10 corrected $ mabe advise --scenario debug ~ batch up to 32 & no very large models
M11 works test_advise::test_scenarios_of_the_guide
M12 corrected $ mabe advise --scenario train --guide ~ -> A10G & batch 64, 8 workers
M13 corrected test_advise::test_scenarios_of_the_guide
M14 corrected $ mabe advise --scenario very-large ~ not compared & H200 & RTX-PRO-6000
M15 works test_on_modal::test_outputs_and_figure_come_back
M16 works $ mabe advise --scenario train --guide ~ batch 64, 8 workers
M17 works test_trainer::test_early_stopping_waits_its_patience_and_no_longer
M18 works test_advise::test_scenarios_of_the_guide
M19 works test_on_modal::test_two_at_once
M20 works test_catalog::test_sums_of_the_modal_guide
M21 works $ mabe advise --hours T4=5,A10G=1.7,A100=0.8 --guide --runs 5 ~ 15.00 & 10.20 & 16.00
M22 corrected test_advise::test_todays_prices_change_the_answer
M23 works test_jobs::test_settings_of_a_training_name_the_card
H1 corrected $ mabe gpus --provider hf ~ cpu-basic & no training: checking data
H2 works test_catalog::test_flavors_of_the_guide
H3 works $ mabe gpus --provider hf ~ 3-7B with LoRA & very large models, 13B+
H4 corrected test_catalog::test_tpus_are_listed_and_not_for_rent
H5 works test_advise::test_sizes_of_the_guide
H6 corrected $ mabe advise --params 8e9 --guide ~ the guide trains models of this size with LoRA only
H7 works test_advise::test_budgets_of_the_guide
H7b corrected test_advise::test_budget_today
H8 works test_advise::test_training_types_of_the_guide
H9 works test_catalog::test_memory_examples_of_the_guide
H10 corrected test_advise::test_full_does_not_fit_where_the_guide_says
H11 corrected $ mabe advise --params 7e9 --method lora --guide ~ maybe & it runs out of memory
H12 corrected $ mabe advise --params 70e9 --method lora ~ nearest: & QLoRA will do: 84 GB
H13 works test_catalog::test_remedies_in_the_order_of_the_guide
H14 works test_catalog::test_sums_of_the_flavor_guide
H15 works $ mabe advise --params 1.5e9 ~ a fourth or fifth of the cost & 30 minutes
H16 corrected $ mabe gpus --provider hf ~ several cards need a script that divides the work
H17 works test_guides::test_a_training_on_several_cards_uses_them_all
H18 works test_on_hf::test_a_command_of_this_package
H19 works $ mabe advise --params 13e9 --method lora ~ an a10g below 13B & 50,000 examples
H20 works test_advise::test_quick_reference
S1 works test_presets::test_flags_of_the_speed_guide_train
S1b corrected test_sweep::test_gains_are_measured_one_by_one
S2 works test_catalog::test_batches_of_the_speed_guide
S3 corrected test_sweep::test_gains_are_measured_one_by_one
S3b corrected test_sweep::test_gains_are_measured_one_by_one
S4 works test_trainer::test_accumulation_is_one_large_batch
S5 works test_presets::test_presets_last_as_long_as_the_guide_says
S6 corrected test_presets::test_what_the_guide_expects_stands_beside_what_is_counted
S7 works test_sweep::test_gains_are_measured_one_by_one
S8 corrected test_trainer::test_half_precision_that_differs_is_left
S9 corrected test_monitor::test_readings_go_to_the_log_and_the_line_but_not_to_the_history
S10 works test_presets::test_flags_of_the_speed_guide_train
S11 works test_presets::test_targets_of_the_guide_stand_beside_an_epoch
S12 works test_monitor::test_readings_go_to_the_log_and_the_line_but_not_to_the_history
S13 works test_presets::test_targets_of_the_guide_stand_beside_an_epoch
S14 works test_hostile::test_too_little_memory_has_a_remedy
S15 works test_sweep::test_what_holds_a_card_up_is_said
S16 corrected test_presets::test_a_flag_of_the_guides_program_is_explained
S17 works test_prepare::test_killed_worker
S18 corrected @ hardware/25_speed_guide.ipynb ~ ours were measured on two cores & each network's own
C1 works test_cluster::test_plans_of_the_guide
C1b works test_cluster::test_the_default_job_trains_with_the_batch_that_it_prints
C2 corrected $ mabe cluster ~ where the guide's text says 1.5
C3 corrected $ mabe cluster --zero ~ that of the guide's FramerTurbo model
C4 works test_cluster::test_mixed_cards_of_the_guide
C5 works test_cluster::test_mixed_cards_of_the_guide
C6 works test_cluster::test_fixed_jobs_start
C7 works test_cluster::test_stage_follows_the_kind_of_card
C8 corrected $ mabe cluster --slurm 2 ~ ntasks=1 & torchrun
C9 works test_cluster::test_strategies_of_the_guide
C10 works $ mabe cluster --slurm 4 ~ --query-gpu=index,name,memory.total,memory.free
C11 works test_cluster::test_logs_folder_is_made_and_asked_for
C12 corrected $ mabe cluster --zero ~ mabe train does not divide a model
V1 works test_models::test_scores_for_every_frame_of_any_window
V2 corrected test_models::test_sizes_that_are_promised
V3 works test_presets::test_the_designs_config_trains_as_it_lies_there
V3b corrected test_guides::test_the_designs_inputs_on_calms21
V4 works test_jobs::test_settings_of_a_training_name_the_card
V5 works test_on_modal::test_left_preempted_and_found_by_another_process
V6 works test_on_modal::test_cancelled_from_another_process
V7 works test_checkpoints::test_the_table_is_what_lies_there
V8 works test_on_modal::test_files_are_listed_and_fetched
V9 corrected test_guides::test_a_workspace_is_chosen_by_modal_itself
V10 works test_presets::test_the_designs_config_trains_as_it_lies_there
V11 corrected test_train::test_history_and_log_agree
V12 works test_features::test_every_kaggle_part_set
V13 works test_features::test_kaggle288_refuses_what_does_not_fit
V14 corrected @ benchmarks.ipynb ~ neither shown nor refuted
V15 works test_links::test_pages
""".strip().splitlines()
TESTS = Path(__file__).parent
PAGES = TESTS.parent/"nbs"


@functools.cache
def names_in(name):
    tree = ast.parse((TESTS/f"{name}.py").read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch): monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))


def test_every_row_is_here_once():
    names = [row.split()[0] for row in ROWS]
    assert len(set(names)) == len(names) == 94
    assert {row.split()[1] for row in ROWS} == {"works", "corrected"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[0])
def test_row(row, capsys):
    _, _, shows = row.split(maxsplit=2)
    if shows[0] not in "$@":
        name, _, test = shows.partition("::")
        assert test in names_in(name)
        return
    asked, _, words = shows[2:].partition(" ~ ")
    if shows[0] == "$":
        assert cli.main(shlex.split(asked)[1:]) == 0
        said = capsys.readouterr().out
    else: said = (PAGES/asked).read_text(encoding="utf-8")
    for word in words.split(" & "): assert word in said, (word, said)


def test_the_designs_inputs_on_calms21():
    "28 coordinates of 14 points, and which of them are missing: said, not refused."
    from mabe_nb.train.config import TrainConfig
    from mabe_nb.train.training_set import config_mismatches
    cfg = TrainConfig(input_dim=28)
    assert config_mismatches(cfg, 42, 4, masks=14) == [
        "input_dim 28 is met; 14 more channels say which points are missing, so the model "
        "sees 42"]
    assert config_mismatches(cfg, 28, 4) == []
    assert "gives 40" in config_mismatches(cfg, 40, 4, masks=14)[0]


def test_a_workspace_is_chosen_by_modal_itself(monkeypatch):
    modal = pytest.importorskip("modal")
    from mabe_nb.errors import ConfigError
    from mabe_nb.remote.places.modal_call import ready
    for name in ("TOKEN_ID", "TOKEN_SECRET"): monkeypatch.setenv(f"MODAL_{name}", "")
    with pytest.raises(ConfigError, match="'modal profile activate NAME' chooses a "
                       "workspace, MODAL_ENVIRONMENT an environment"): ready()
    monkeypatch.setenv("MODAL_ENVIRONMENT", "spare")
    assert modal.config.config.get("environment") == "spare" # that all calls take


@pytest.mark.parametrize("gpu,on,number", [
    ("L4:2", "modal", 2), ("a10g-largex2", "hf", 2), ("l4x4", "hf", 4), ("l4x1", "hf", 1)])
def test_a_training_on_several_cards_uses_them_all(gpu, on, number):
    from mabe_nb.remote.choice import team_command
    words = team_command(["mabe", "train", "colony"], gpu, on)
    assert words[-3:] == ["mabe", "train", "colony"]
    assert (words[0] == "torchrun") == (number > 1)
    if number > 1: assert words[words.index("--nproc-per-node") + 1] == str(number)
    for words in (["--recipe", "best"], ["--recipe=best"], ["--per-lab"]): # many trainings
        words = ["mabe", "train", "colony", *words]
        assert team_command(words, gpu, on) == words
