"""Each defect, injected by name into a clean recording, is found and counted."""
import itertools
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from kaggle_files import bout_rows, write_parquet, write_small
from mabe_nb.cli import main
from mabe_nb.data.audit import (COLUMNS, KINDS, AuditReport, audit, body_sizes, never_seen,
                                video_rows)
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.checks.defects import check
from mabe_nb.data.checks.sightings import all_exchanges, body_size, exchanges, seen
from mabe_nb.data.dataset import RecordingList, open_dataset
from mabe_nb.data.recording import Finding, Recording, bout_table
from mabe_nb.data.splits import groups
from mabe_nb.data.synthetic import write_colony
from mabe_nb.errors import ConfigError, DataError

DATA = Path(__file__).parents[2]/"shared"/"data"
ALL = frozenset({("mouse1", "mouse2", "sniff"), ("mouse2", "mouse1", "sniff"),
                 ("mouse1", "mouse2", "chase")})


def walk(frames=300, seed=0, mice=2, fps=30.0, video_id="1", scale=1.0, apart=250):
    "Mice of about 80 px on smooth paths that are `apart` px from each other."
    rng = np.random.default_rng(seed)
    t, phase = np.arange(frames)[:, None] / fps, rng.uniform(0, 6, mice)
    middle = np.stack([np.sin(t / 2 + phase), np.cos(t / 3 + phase)], -1) * 60
    middle += np.stack([np.arange(mice) * apart + 200, np.full(mice, 300)], -1)
    body = np.array([[0, -40], [20, -10], [-20, -10], [0, 40]]) * scale
    xy = middle[:, :, None] + body + rng.normal(0, 0.2, (frames, mice, 4, 2))
    return Recording(xy.astype(np.float32), tuple(f"mouse{i+1}" for i in range(mice)),
                     ("nose", "ear_left", "ear_right", "tail_base"), fps, 10.0,
                     bout_table([("mouse1", "mouse2", "sniff", 10, 40),
                                 ("mouse2", "mouse1", "sniff", 60, 90),
                                 ("mouse1", "mouse2", "chase", 100, 150)]),
                     ALL, video_id, "Lab", {"video_width_pix": 1000,
                     "video_height_pix": 800, "video_duration_sec": frames / fps})


def kinds(rec): return {d.kind: d.count for d in check(rec)}


def bouts(rec, *rows):
    return rec.replace(bouts=bout_table([*rec.bouts.itertuples(index=False), *rows]))


def spoil(name, rec):
    xy = rec.xy
    if name == "missing_points": xy[5:10, 0, 1] = np.nan
    if name == "zero_points": xy[7:9, 1, 0] = 0
    if name == "infinite_points": xy[7, 1, 0, 0] = np.inf
    if name == "frame_gaps": xy[50:57] = np.nan
    if name == "frozen_points": xy[50:90, 1, 2] = xy[50, 1, 2]
    if name == "unseen_bouts": xy[100:145, 0] = np.nan # of 50 frames
    if name == "jumps": xy[70, 0, 3] += 200
    if name == "identity_swaps": xy[120] = xy[120, ::-1]
    if name == "bouts_outside":
        return bouts(rec, ("mouse2", "mouse1", "sniff", 290, 301))
    if name == "empty_bouts": return bouts(rec, ("mouse2", "mouse1", "sniff", 200, 200))
    if name == "short_bouts": return bouts(rec, ("mouse2", "mouse1", "sniff", 200, 203))
    if name == "overlapping_bouts":
        return bouts(rec, ("mouse1", "mouse2", "sniff", 149, 160))
    if name == "untracked_bouts":
        return bouts(rec, ("mouse3", "mouse1", "sniff", 200, 230)).replace(
            labelled=ALL | {("mouse3", "mouse1", "sniff")})
    if name == "unlisted_bouts":
        return bouts(rec, ("mouse2", "mouse1", "bite", 200, 230))
    if name == "fps_mismatch": return rec.replace(fps=25.0)
    if name == "scale_missing": return rec.replace(px_per_cm=None)
    if name == "unlabelled": return rec.replace(bouts=bout_table(), labelled=None)
    if name == "empty_video":
        return rec.replace(xy=xy[:0], bouts=bout_table(), meta={})
    return rec


COUNTS = {"missing_points": 5, "zero_points": 2, "infinite_points": 1, "frame_gaps": 7,
          "frozen_points": 40, "jumps": 2, "identity_swaps": 2, "bouts_outside": 1,
          "empty_bouts": 1, "short_bouts": 1, "overlapping_bouts": 1,
          "untracked_bouts": 1, "unlisted_bouts": 1, "fps_mismatch": 50,
          "scale_missing": 1, "unlabelled": 1, "unseen_bouts": 1,
          "empty_video": 1}


def test_a_clean_recording_has_no_defect():
    assert kinds(walk()) == {} and len(audit([walk()]).table) == 0


@pytest.mark.parametrize("name", COUNTS)
def test_defect_is_found_and_counted(name):
    found = kinds(spoil(name, walk()))
    found.pop("missing_points" if name in ("frame_gaps", "unseen_bouts") else None, None)
    assert found == {name: COUNTS[name]}
    assert name in KINDS


@pytest.mark.parametrize("frames, fps, seconds, off", [
    (300, 1.0, 306, 0), (300, 1.0, 307, 7), (300, 1.0, 294, 0), (300, 1.0, 293, 7),
    (300, 30.0, 11, 0), (300, 30.0, 9, 0), (300, 30.0, 11.1, 33), (300, 30.0, 8.9, 33)])
def test_lengths_may_differ_by_a_second_or_two_per_cent(frames, fps, seconds, off):
    "Whichever is more; the bound itself is no finding."
    rec = walk(frames, fps=fps)
    rec = rec.replace(meta=rec.meta | {"video_duration_sec": seconds})
    assert kinds(rec).get("fps_mismatch", 0) == off


def test_points_outside_the_picture():
    rec = walk()
    rec.xy[3, 0, 0], rec.xy[4:6, 1, 1, 0], rec.xy[8, 1, 2, 1] = -1, 1001, 801
    assert kinds(rec)["points_outside"] == 4
    rec = rec.replace(meta={"video_width_pix": "?", "video_height_pix": None})
    assert kinds(rec)["points_outside"] == 1
    assert "inf" not in next(d.message for d in check(rec) if d.kind == "points_outside")


def test_shares_are_shares():
    rec = walk()
    rec.xy[:150, 0] = np.nan
    assert [(d.kind, d.share) for d in check(rec)] == [("missing_points", 0.25), ("unseen_bouts", 1)]
    rec.xy[:] = np.nan
    assert [(d.kind, d.share) for d in check(rec)] == [
        ("missing_points", 1), ("frame_gaps", 1), ("untracked_animals", 1), ("unseen_bouts", 1)]


@pytest.mark.parametrize("first, stop, found", [(100, 400, 300), (100, 399, 0), (0, 450, 0)])
def test_an_animal_that_is_lost_for_ten_seconds(first, stop, found):
    rec = walk(450)
    rec.xy[first:stop, 1] = np.nan # all of it: an animal that no frame shows, another kind
    assert kinds(rec).get("lost_animals", 0) == found


def test_the_command_says_how_many_warnings_it_left_out(tmp_path, capsys):
    data = write_colony(tmp_path/"colony", videos=9, minutes=0.2)
    assert main(["audit", str(data)]) == 0
    report = audit(open_dataset(data))
    left = (report.table.severity != "info").sum() - len(report.foremost())
    assert left > 0 and f"and {left} more: --json lists all" in capsys.readouterr().out


def test_the_worst_warnings_of_a_kind_are_shown():
    rows = [("v1", "jumps", "warning", .01), ("v2", "jumps", "warning", .3), ("", "lag", "warning", .2),
            ("v3", "jumps", "warning", .02), ("v4", "tables", "error", np.nan)]
    table = pd.DataFrame([(v, "lab", kind, severity, 1, share, "")
                          for v, kind, severity, share in rows], columns=COLUMNS)
    shown = AuditReport(table, "four", 4, 100).foremost(each=2)
    assert shown.video_id.tolist() == ["v4", "v2", "", "v3"]


def test_a_slow_camera_does_not_make_jumps():
    rec = walk(fps=5.0)
    rec.xy[:, 0] += (np.arange(300) % 2 * 100)[:, None, None]
    assert "jumps" not in kinds(rec)
    assert kinds(rec.replace(fps=30.0))["jumps"] == 299 * 4


def test_stillness_shorter_than_a_second_is_not_frozen():
    rec = walk()
    rec.xy[50:80, 1, 2] = rec.xy[50, 1, 2] # 30 frames at 30 fps
    assert kinds(rec) == {}
    rec.xy[80, 1, 2] = rec.xy[50, 1, 2]
    assert kinds(rec) == {"frozen_points": 31}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_exactly_the_swaps_that_were_made_are_found(data):
    seed, mice = data.draw(st.integers(0, 99)), data.draw(st.integers(2, 4))
    rec = walk(200, seed, mice, apart=data.draw(st.sampled_from([150, 250])))
    i, j = sorted(data.draw(st.permutations(range(mice)))[:2])
    cuts = sorted(data.draw(st.sets(st.integers(1, 199), min_size=1, max_size=8)))
    rec.xy[np.random.default_rng(seed).random(rec.xy.shape[:3]) < 0.05] = np.nan
    for cut in cuts: rec.xy[cut:, [i, j]] = rec.xy[cut:, [j, i]]
    found = all_exchanges(rec, seen(rec))
    assert {k: v.tolist() for k, v in found.items()} == {(i, j): cuts}
    assert "jumps" not in kinds(rec)


def runners(behind, beside, pace=40):
    "The first mouse runs `behind` and `beside` px from the second, `pace` px a frame."
    rec = walk(60)
    xy = np.tile(rec.xy[0, 0], (60, 2, 1, 1))
    xy[..., 0] += (np.arange(60) * pace)[:, None, None]
    xy[:, 0] -= [behind, beside]
    return rec.replace(xy=xy, bouts=bout_table(), meta={})


def test_exchanges_in_a_long_video_are_those_of_its_parts():
    "Looked for in parts of 45,000 frames, on their border too; a known number of them."
    n, at = 180_000, [1000, 44_999, 90_000, 90_003, 135_001, 179_000]
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(n, 1, 2)).cumsum(0) * 0.1 + far
            + 20 * rng.normal(size=(1, 5, 2)) for far in (0, 2000))
    for k in at: a[k:], b[k:] = b[k:].copy(), a[k:].copy()
    assert exchanges(a.astype(np.float32), b.astype(np.float32), 60.0, 6).tolist() == at


def test_a_swap_is_found_while_both_run():
    rec = runners(0, 100)
    assert kinds(rec) == {}
    rec.xy[30] = rec.xy[30, ::-1]
    assert kinds(rec) == {"identity_swaps": 2}
    flies = rec.replace(mice=("fly1", "fly2"))
    said, = (d.message for d in check(flies) if d.kind == "identity_swaps")
    assert said.startswith("2 swaps of names between two animals (fly1 and fly2)") and "mice" not in said
    rec.xy[31:] = rec.xy[31:, ::-1] # and stays so
    said, = (d.message for d in check(rec) if d.kind == "identity_swaps")
    assert said.startswith("1 swap of names between two animals") and ": 1 video," in repr(audit([rec]))


def test_passing_by_is_no_swap():
    rec = walk(60)
    xy = rec.xy - rec.xy.mean(2, keepdims=True) + np.float32([300, 300])
    xy[:30, 1] += [70, 56]
    xy[30:, 0] += [70, 0]
    xy[30:, 1] += [0, 56] # Each 70 px from where it was, 56 from where the other was
    assert kinds(rec.replace(xy=xy, bouts=bout_table(), meta={})) == {}


def test_animals_that_lie_on_each_other_swap_no_names():
    "A step of a thirtieth of a body is no exchange, whichever of them is nearer."
    rec = walk()
    rec.xy[:, 1] = rec.xy[:, 0] + 3
    rec.xy[100:] = rec.xy[100:, ::-1]
    assert "identity_swaps" not in kinds(rec)


@pytest.mark.parametrize("behind", [20, 40, 80, 120])
def test_chasing_in_line_is_no_swap(behind):
    assert kinds(runners(behind, 0)) == {}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 298), st.integers(1, 5))
def test_a_swap_during_a_short_gap_is_found(cut, gap):
    rec = walk()
    rec.xy[cut:] = rec.xy[cut:, ::-1]
    rec.xy[cut:cut + gap] = np.nan
    back = min(cut + gap, 300)
    assert [f.tolist() for f in all_exchanges(rec, seen(rec)).values()] == (
        [[back]] if back < 300 else [])


def test_body_length_ignores_tails_and_survives_single_points():
    rec = walk()
    assert 79 < body_size(rec, seen(rec)) < 82
    tail = rec.replace(parts=("nose", "ear_left", "tail_base", "tail_tip"))
    assert body_size(tail, seen(tail)) < 50
    point = rec.replace(xy=rec.xy[:, :, :1], parts=("nose",))
    assert 20 < body_size(point, seen(point)) < 100
    assert kinds(point) == {}


class Folder:
    "A dataset of which some videos are broken."
    name = "folder"

    def __init__(self, videos, broken=(), found=()):
        self.ids = tuple(map(str, range(videos)))
        self.broken, self.found = broken, found

    def __len__(self): return len(self.ids)
    def findings(self): return list(self.found)

    def __getitem__(self, video):
        if video in self.broken: raise DataError("is no parquet", f"{video}.parquet")
        if video not in self.ids: raise ConfigError.unknown("video", video, self.ids)
        return walk(seed=int(video), video_id=video)


def test_unreadable_videos_are_rows_and_the_rest_goes_on():
    report = audit(Folder(5, broken=("1", "3")))
    assert report.table.kind.tolist() == ["unreadable"] * 2
    assert report.table.severity.tolist() == ["error"] * 2
    assert "1.parquet" in report.table.message[0]
    assert (report.videos, report.frames) == (5, 900)


def test_ids_choose_videos_and_unknown_ones_are_refused():
    assert audit(Folder(5), ids=["2", 4]).videos == 2
    with pytest.raises(ConfigError, match="9"): audit(Folder(5), ids=["9"])


def test_findings_of_reader_and_dataset_are_rows():
    rec = walk().replace(findings=(Finding("1", "quoted_tokens", 2, "2 quoted"),
                                   Finding("1", "missing_points", 9, "9 missing")))
    rec.xy[0, 0, 0] = np.nan
    assert {r[2]: r[4] for r in video_rows(rec)} == {"quoted_tokens": 2,
                                                     "missing_points": 9}
    whole = (Finding("", "tracking_without_row", 3, "3 files"),)
    table = audit(Folder(2, found=whole)).table
    assert table[["video_id", "kind", "count"]].to_numpy().tolist() == [
        ["", "tracking_without_row", 3]]


def test_copies_and_pieces_share_tracks():
    recs = [walk(900, seed=i, video_id=str(i)) for i in range(4)]
    piece = recs[2].replace(xy=recs[2].xy[200:700], video_id="piece", lab_id="Other",
                            bouts=bout_table(), labelled=None, meta={})
    table = audit([*recs, recs[0].replace(video_id="copy")] + [piece]).table
    same = table[table.kind == "duplicated_tracks"].set_index("video_id")
    assert set(same.index) == {"0", "copy", "2", "piece"}
    assert "video copy" in same.message["0"] and "video 2" in same.message["piece"]
    assert same.share["copy"] == 1 and 0 < same.share["2"] < 1
    assert same.message.str.contains("leak").all()


def test_an_id_that_comes_twice():
    table = audit([walk(seed=1), walk(seed=2)]).table
    assert table.kind.tolist() == ["duplicated_id"] and table["count"][0] == 2


def test_a_video_of_another_scale_and_a_series_of_them():
    recs = [walk(seed=i, video_id=str(i), scale={4: 0.8, 7: 1.3}.get(i, 1))
            for i in range(12)]
    table = audit(recs).table
    assert table[table.kind == "body_size"].video_id.tolist() == ["4", "7"]
    recs = [walk(seed=i, video_id=str(i), scale=1.1 if i > 7 else 1)
            for i in range(16)]
    table = audit(recs).table
    assert table.kind.tolist() == ["size_drift"]
    assert "from video 8 on" in table.message[0]
    cured = [r.replace(px_per_cm=11.0 if i > 7 else 10.0) for i, r in enumerate(recs)]
    assert audit(cured).table.empty


def test_a_video_of_another_scale_whatever_the_animals_are_called():
    recs = [walk(seed=i, video_id=str(i), scale=1.5 if i == 3 else 1) for i in range(6)]
    recs = [r.replace(mice=(f"a{i}", f"b{i}"), bouts=bout_table(), labelled=None)
            for i, r in enumerate(recs)]
    assert audit(recs).table.query("kind == 'body_size'").video_id.tolist() == ["3"]


def test_body_sizes_of_nothing_are_no_error():
    nothing = np.full(3, np.nan)
    assert body_sizes([]) == [] and body_sizes([("1", "L", (), nothing)] * 5) == []


def test_actions_that_are_never_seen_are_named_by_lab():
    rec = walk().replace(labelled=ALL | {("mouse1", "mouse2", "bite")})
    row = audit([rec]).table.iloc[0]
    assert (row.kind, row.lab_id, row["count"]) == ("never_seen", "Lab", 1)
    assert "bite" in row.message
    said = [r[-1] for r in never_seen({"A": {"bite"}, "B": {"bite"}}, {"A": {"bite"}, "B": set()})]
    assert said == ["lab B: looked for but never seen: bite"]


def test_what_a_test_part_hides_is_not_called_never_seen(tmp_path):
    write_small(tmp_path, ("1", "2"))
    (tmp_path/"train_tracking").rename(tmp_path/"test_tracking")
    (tmp_path/"train.csv").rename(tmp_path/"test.csv")
    assert "never_seen" not in {*audit(open_dataset(tmp_path, "test")).table.kind}
    write_parquet(tmp_path, bout_rows([]), "1", "annotation", split="test")
    table = audit(open_dataset(tmp_path, "test")).table
    assert ["chase" in m for m in table.message[table.kind == "never_seen"]] == [True]


def test_report_summary_worst_json(tmp_path):
    recs = [spoil(n, walk(seed=i, video_id=n)) for i, n in enumerate(COUNTS)]
    report = audit(recs)
    summary = report.summary()
    assert summary.severity.tolist() == sorted(summary.severity, key=[
        "error", "warning", "info"].index)
    assert set(COUNTS) <= set(summary.kind)
    worst = report.worst(3)
    assert len(worst) == 3 and (worst.error > 0).all()
    text = report.to_json(tmp_path/"audit.json")
    assert json.loads(text) == json.loads((tmp_path/"audit.json").read_text())
    assert len(json.loads(text)["defects"]) == len(report.table)


def test_memory_does_not_grow_with_the_number_of_videos():
    def peak(videos):
        tracemalloc.start()
        audit(walk(2000, seed=i, video_id=str(i)) for i in range(videos))
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return high
    audit([walk()]) # What is imported and cached once
    assert peak(24) < 1.3 * peak(3)


@pytest.mark.skipif(not (DATA/"rats").is_dir(), reason="shared/data/rats is not here")
def test_real_rats():
    from mabe_nb.data.kaggle import read_kaggle
    rats, fights = (read_kaggle(DATA/n) for n in ("rats", "rat_fights"))
    report = audit(itertools.chain((rats[i] for i in rats.ids[:4]),
                                   (fights[i] for i in fights.ids[:3])))
    summary = report.summary().set_index("kind")
    assert "unreadable" not in summary.index and report.frames == 7 * 12000
    assert summary.videos["missing_points"] == summary.videos["scale_missing"] == 7
    assert 0.1 < summary.share["missing_points"] < 0.6
    assert summary.videos["duplicated_tracks"] == 6


def test_all_long_gaps_of_an_animal_count():
    rec = walk(2700)
    rec.xy[:600, 1], rec.xy[1950:, 1], rec.xy[1000:1020, 1] = np.nan, np.nan, np.nan
    found, = (d for d in check(rec) if d.kind == "lost_animals")
    assert found.count == 600 + 750 and found.share == 1350 / 5400
    assert found.message.endswith("mouse2 for 25.0 s from frame 1950 (45.0 s in 2 such gaps)")
    rec.xy[1950:1960, 1] = rec.xy[1900, 1]
    assert "mouse2 for 24.7 s from frame 1960 (44.7 s in 2" in str(check(rec))


@pytest.mark.parametrize("ids, found", [("v0-v2", 3), ("v1", 1), (["v1"], 1), (None, 4)])
def test_recordings_in_any_form_show_a_bar_and_take_ranges(ids, found, capsys):
    recs = [walk(60, seed=i, video_id=f"v{i}") for i in range(4)]
    for data in (recs, iter(recs), tuple(recs), RecordingList(recs)):
        assert audit(data, ids, progress=True).videos == found
    assert len(groups((r for r in recs), ids, progress=True)) == found
    bar = capsys.readouterr().err
    assert f"{found}video" in bar.replace(" ", "") or f"{found}/{found}" in bar
    with pytest.raises(ConfigError, match="v9"): audit(recs, "v9")


def test_a_part_of_few_frames_in_the_place_of_others_is_told():
    rec, told = make_recording(1, 600, parts=("nose", "ear_left", "ear_right", "tail_base")), {}
    for name, frames in (("some", 300), ("few", 20), ("none", 0)):
        xy = rec.xy.copy()
        xy[frames:, :, 0] = np.nan
        table = audit([rec.replace(xy=xy)]).table
        told[name] = [*table[table.kind == "rare_parts"].message]
    assert told["some"] == told["none"] == []
    assert told["few"][0].startswith("the front of an animal is its nose, seen in 3.3% of the frames, and not "
                                     "ear_left and ear_right, seen in 100%")
