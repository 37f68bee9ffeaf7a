"A folder that grows: what is new alone is predicted, one table, a page for each batch."
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from test_open_folder import recording, write_boris, write_dlc

from mabe_nb.analysis.batch import (DOUBT, _action_rows, batch_report, odd_lines, training_rates,
                                    video_facts)
from mabe_nb.analysis.watch import Watched, _write_batch
from mabe_nb.cli import main
from mabe_nb.data.folder.tracker_folder import TrackerFolder
from mabe_nb.errors import DataError
from mabe_nb.train.model import load_model
from mabe_nb.train.review.moments import predict_for_review

YAML = ("fps: 30\nmin_confidence: 0.5\nalone: [rear]\nactions: [sniff, rear]\n"
        "subjects: {mouse1: black, mouse2: white}\nvideos: {fast: {fps: 120}}\n")
SAME = ["video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A small run that says something of every video."
    root = tmp_path_factory.mktemp("watch")
    (root/"learn").mkdir()
    watched = {(a, t, "sniff") for a, t in (("mouse1", "mouse2"), ("mouse2", "mouse1"))
               } | {(m, m, "rear") for m in ("mouse1", "mouse2")}
    for k in range(1, 4):
        rec = recording(k, 600, labelled=watched)
        write_dlc(root/"learn", f"v{k}", rec)
        write_boris(root/"learn", f"v{k}", [(b.agent, b.action, b.start, b.stop)
                                            for b in rec.bouts.itertuples()])
    (root/"learn"/"dataset.yaml").write_text(YAML)
    assert main(["train", str(root/"learn"), "--out", str(root/"run"), "--epochs", "2",
                 "--hidden-size", "8", "--num-layers", "1", "--valid-videos", "v3",
                 "--device", "cpu"]) == 0
    (root/"low.json").write_text('{"*": {"sniff": 0.1, "rear": 0.1}}')
    return root/"run"


@pytest.fixture
def films(tmp_path):
    folder = tmp_path/"films <b>"
    (folder/"day1").mkdir(parents=True)
    for k in (1, 2): write_dlc(folder/"day1", f"v{k}", recording(k))
    (folder/"dataset.yaml").write_text(YAML)
    return folder


def look(run, films, capsys, *more):
    "The answer of one look."
    capsys.readouterr()
    code = main(["predict", str(run), str(films), "--watch", "0", "--out",
                 str(films.parent/"found"), "--thresholds", str(run.parent/"low.json"), "--json",
                 *more])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_only_what_is_new_is_predicted_and_one_table_holds_all(run, films, capsys):
    found = films.parent/"found"
    assert look(run, films, capsys)["new"] == ["day1_v1", "day1_v2"]
    before = {p.name: p.stat().st_mtime_ns for p in (found/"videos").iterdir()}
    assert look(run, films, capsys)["new"] == []
    assert not (found/"report-2.html").exists()
    (films/"day2").mkdir()
    write_dlc(films/"day2", "v1", recording(5))
    assert look(run, films, capsys)["new"] == ["day2_v1"] and (found/"report-2.html").exists()
    assert {p.name: p.stat().st_mtime_ns for p in (found/"videos").iterdir()
            if p.name in before} == before, "what was done is not done again"
    assert main(["predict", str(run), str(films), "--out", str(films.parent/"all.csv"),
                 "--thresholds", str(run.parent/"low.json")]) == 0
    table, all_of = pd.read_csv(found/"predicted.csv"), pd.read_csv(films.parent/"all.csv")
    assert len(table) and {*table.video_id} == {"day1_v1", "day1_v2", "day2_v1"}
    assert table[SAME].equals(all_of[SAME])
    assert np.allclose(table.start_s * 30, table.start_frame, atol=0.05)
    assert main(["analyse", str(found/"predicted.csv"), str(films), "--out",
                 str(films.parent/"results")]) == 0


def test_a_video_is_asked_about_once(run, films, tmp_path):
    model, data, windows = load_model(run), TrackerFolder(films), []
    model.model.head.register_forward_hook(lambda *call: windows.append(len(call[2])))
    table, once = model.predict(data, ["day1_v1"], cache=tmp_path), sum(windows)
    windows.clear()
    facts = video_facts(model, data, "day1_v1")
    assert sum(windows) == once > 0
    assert facts["rows"] == table.iloc[:, 2:].values.tolist() and facts["pairs"] == 4
    told = list(predict_for_review(model, data, ["day1_v1"], tmp_path))
    shares = [((q.p > DOUBT[0]) & (q.p < DOUBT[1])).any(1).mean() for q in told]
    assert facts["doubtful"] == round(sum(shares) / 4, 4) > 0


def test_touched_is_not_new_and_changed_is(run, films, capsys):
    look(run, films, capsys)
    path = next((films/"day1").glob("v1*"))
    os.utime(path, (1, 1))
    assert look(run, films, capsys)["new"] == []
    write_dlc(films/"day1", "v1", recording(9))
    assert look(run, films, capsys)["new"] == ["day1_v1"]


def test_the_page_says_what_looks_odd(run, films, capsys):
    write_dlc(films, "fast", recording(3))
    alone = recording(4)
    alone.xy[:120, 1] = np.nan
    write_dlc(films, "lost", alone)
    (films/"one").mkdir()
    write_dlc(films/"one", "solo", alone.replace(xy=alone.xy[:, :1], mice=("mouse1",)), ("black",))
    (films/"cutDLC_net.csv").write_text("\n".join(
        next((films/"day1").glob("v1*")).read_text().splitlines()[:4]) + "\n0,x,y\n")
    answer = look(run, films, capsys)
    assert len(answer["new"]) == 6
    page = (films.parent/"found"/"report.html").read_text()
    for words in ("120 frames/s, learned at 30", "white is missing in 40% of the frames",
                  "1 animal, most videos have 2", "could not be predicted"):
        assert words in page, words
    assert "films &lt;b&gt;" in page and "<b>" not in page and "<script" not in page
    assert str(films.parent) not in page
    assert look(run, films, capsys)["new"] == [], "a broken file is said once"


def test_what_does_not_fit_is_refused(run, films, tmp_path, capsys):
    look(run, films, capsys)
    words = ["predict", str(run), str(films), "--out", str(tmp_path/"found")]
    for more, says in ((["--watch", "0"], "another decision"),
                       (["--watch", "0", "--videos", "day1_v1"], "--videos does not go"),
                       (["--watch", "0", "--on", "local"], "--on does not go"),
                       (["--every", "3"], "--every goes with --watch"),
                       (["--watch", "-1"], "at least 0")):
        try: code = main([*words, *more])
        except SystemExit as e: code = e.code
        assert code == 2 and says in capsys.readouterr().err


def wait(what, process, seconds=120):
    end = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_it_goes_on_until_ctrl_c(run, films):
    found = films.parent/"found"
    (films/"day1").rename(films.parent/"day1") # begins with an empty folder
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from mabe_nb.cli import main; sys.exit(main())",
         "predict", str(run), str(films), "--watch", "--every", "0.2", "--out", str(found)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait(lambda: (found/"predicted.csv").exists(), process)
        (films.parent/"day1").rename(films/"day1")
        wait(lambda: len([*found.glob("videos/*.json")]) == 2, process)
        write_dlc(films, "late", recording(6))
        wait(lambda: (found/"videos"/"late.json").exists(), process)
        wait(lambda: len([*found.glob("report-*.html")]) >= 2, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally: process.kill()
    assert process.returncode == 0, err
    assert "3 new videos, 3 in all" in out and "the same line goes on" in err
    assert "Traceback" not in err and not [*found.glob(".*tmp*")]


@pytest.mark.browser
def test_the_page_in_a_browser(run, films, capsys):
    from lab_page import CHROMIUM, FLAGS
    if not CHROMIUM: pytest.skip("no Chromium")
    from playwright.sync_api import sync_playwright
    write_dlc(films, "fast", recording(3))
    look(run, films, capsys)
    with sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 420, "height": 800})
        said = []
        page.on("console", lambda m: said.append(m.text))
        page.goto((films.parent/"found"/"report.html").as_uri())
        assert page.locator("h1").inner_text() == "films <b>: batch 1"
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        assert page.locator("img").evaluate("i => i.naturalWidth") > 0 and said == []
        browser.close()


def facts(bouts=(), doubtful=0.0):
    "A minute of one animal; each bout of `sniff` lasts ten frames of 600."
    rows = [["a", "self", "sniff", at, at + 10] for at in bouts]
    return {"video": "v", "fps": 10.0, "frames": 600, "pairs": 1, "missing": {"a": 0.0},
            "doubtful": doubtful, "unlike": [], "rows": rows or [["a", "self", "rear", 0, 9]]}


def test_an_action_is_odd_that_no_training_video_had_so_often_or_so_rarely():
    many, few = facts(range(0, 600, 20)), facts([5])
    assert odd_lines(many, {"sniff": (.1, .1, 0, .4)}) == ["sniff is 5 times as frequent as in training"]
    assert odd_lines(many, {"sniff": (.1, .1, 0, .6)}) == []
    assert odd_lines(few, {"sniff": (.1, .1, .05, .4)}) == ["1 bout of sniff, by the training 6"]
    assert odd_lines(few, {"sniff": (.1, .1, .01, .4)}) == [] # a video that judged had as little
    assert odd_lines(few, {"sniff": (.1, .04, .05, .4)}) == []


def test_a_run_is_asked_what_its_videos_spanned(tmp_path):
    about = {"training_counts": {"sniff": {"frames": 60, "bouts": 6}, "rear": {"frames": 6, "bouts": 3}},
             "looked_at": {"frames": 600, "seconds": 60},
             "budgets": {"sniff": {"videos": 2, "least": .05, "most": .2, "sd": .1}}}
    (tmp_path/"metrics.json").write_text(json.dumps(about))
    assert training_rates(tmp_path) == {"sniff": (.1, .1, .05, .2), "rear": (.01, .05, 1, 0)}
    for wrong in ({"looked_at": {"frames": 600}}, {"budgets": [2]}, {"budgets": {"sniff": {"videos": 2}}},
                  {"training_counts": {"sniff": 3}}):
        (tmp_path/"metrics.json").write_text(json.dumps(about | wrong))
        with pytest.raises(DataError, match="does not tell how frequent actions were"): training_rates(tmp_path)


def test_doubt_is_odd_beside_that_of_most_videos():
    assert odd_lines(facts(doubtful=.3)) == ["undecided in 30% of the frames"]
    assert odd_lines(facts(doubtful=.3), doubtful=.25) == []
    assert odd_lines(facts(doubtful=.6), doubtful=.25) == ["undecided in 60% of the frames"]
    assert odd_lines(facts(doubtful=.9), doubtful=.6) == ["undecided in 90% of the frames"]


def test_a_batch_of_few_is_no_measure_of_itself(tmp_path):
    report = lambda *doubts: {*batch_report(tmp_path/"o.html", "t", [
        facts(doubtful=d) | {"video": f"v{i}"} for i, d in enumerate(doubts)])}
    assert report(.95) == {"v0"} and report(1., 0.) == {"v0"}
    assert report(.3, .3, .3, .3) == set() and report(.3, .3, .3, .8) == {"v3"}


def test_an_animal_that_does_so_to_two_at_once_spends_the_time_once():
    rows = [["a", "b", "sniff", 0, 300], ["a", "c", "sniff", 100, 300], ["b", "self", "rear", 0, 60]]
    found = facts() | {"missing": dict.fromkeys("abc", 0.0), "pairs": 9, "rows": rows}
    table = _action_rows([found, found | {"video": "w", "rows": []}], {}).set_index("action")
    assert table["share of an animal's time"].to_dict() == {"sniff": "8.3%", "rear": "1.7%"} # 30 of 360 s
    assert list(_action_rows([found | {"rows": []}], {"dig": (.1, .1, 0, 1)})["share of an animal's time"]) == ["0.0%"]


def test_a_page_that_was_taken_away_makes_no_room_for_another(tmp_path):
    watched, said = Watched(tmp_path, {}), []
    (tmp_path/"report-mine.html").write_text("")
    for video in "uvw":
        watched.keep(facts([5]) | {"video": video})
        _write_batch(watched, [video], {}, "colony", said.append)
        if video == "v": (tmp_path/"report-1.html").unlink()
    assert sorted(p.name for p in tmp_path.glob("report-*")) == ["report-2.html", "report-3.html", "report-mine.html"]
    assert ": batch 2" in (tmp_path/"report-2.html").read_text()
