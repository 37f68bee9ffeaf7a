"The player, its pictures and its companions, driven by their state alone."
import json
import re
import xml.etree.ElementTree as ET

import ipywidgets as W
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from traitlets import TraitError

from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.recording import bout_table, frame_labels, of_pair
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.view.colors import COLORS
from mabe_nb.view.video import strips
from mabe_nb.view.video.explorer import Explorer
from mabe_nb.view.report import figure_svg, inline_svg
from mabe_nb.view.style import Picture
from mabe_nb.view.panels.panel import control_names
from mabe_nb.view.video.player import Player
from mabe_nb.view.video.scene import extent, mark_of, plot_pose, skeleton
from mabe_nb.view.video.stage import PIECE, VIDEO_PIECE, video_pieces
from mabe_nb.view.video.prediction_errors import (ErrorPanel, PairPrediction, error_runs,
                                      predicted_bouts, ribbon_strip, worst_errors)

NASTY = '<img src=x onerror=alert(1)>"\'&$x^2$'
PAIR = ("mouse1", "mouse2")
SHORT = make_recording(seed=2, frames=30)
PLAYED = Player(SHORT)


def long(rec, times=40): return rec.replace(xy=np.tile(rec.xy, (times, 1, 1, 1)))


def video(**how): return make_recording(**{"seed": 3, "frames": 900, "mice": 3} | how)


@pytest.fixture
def player(): return Player(video(), pair=PAIR)


def sent(player):
    "What the stage sends from now on."
    messages = []
    player.stage.send = lambda message, buffers=(): messages.append((message, *buffers))
    return messages


def element(text): return ET.fromstring(re.sub(r"xlink:", "", text))


def below(widget):
    yield widget
    for child in getattr(widget, "children", ()): yield from below(child)


# Moving

def test_every_control_has_a_name_and_a_tooltip(player):
    found = [w for w in below(player.box) if isinstance(w, (W.Button, W.ValueWidget))
             and not isinstance(w, W.HTML)]
    assert len(found) == 4 and len({w.description for w in found}) == len(found)
    for w in found: assert w.description.strip() and w.tooltip.strip(), w
    assert {"Video of poses", "Pair", "Time shown"} <= set(control_names(player.box))


def test_a_frame_is_shown_by_whatever_sets_it(player):
    messages = sent(player)
    player.go_to(100)
    assert player.frame == 100 and messages == [({"go": 100},)]
    player.step(-1)
    assert player.frame == 99
    player.go_to(5)
    player.step(-100)
    assert player.frame == 0
    player.go_to(10**7)
    assert player.frame == 899
    player.stage.frame = 7 # as the browser says it
    assert player.frame == 7 and "frame=7" in player.code()


def test_bouts_in_both_directions(player):
    mine = of_pair(player.rec.bouts, *PAIR)
    seen = []
    for _ in range(len(mine) + 3):
        player.step_bout(1)
        seen.append(player.frame)
    assert sorted(set(seen)) == sorted({*mine.start} - {0})
    for _ in range(len(mine) + 3): player.step_bout(-1)
    assert player.frame == min(mine.start)
    player.go_to(mine.start.iloc[1] + 1)
    player.step_bout(-1)
    assert player.frame == mine.start.iloc[1]


def test_another_pair_has_other_bouts_and_words(player):
    other = ("mouse2", "mouse1")
    player.pair_box.value = other
    assert set(player.bout_starts) == set(of_pair(player.rec.bouts, *other).start)
    assert player.stage.who == "mouse2 → mouse1" and player.stage.pair == [0, 1]
    with pytest.raises((TraitError, TypeError)): player.pair_box.value = ("mouse1", "mouse7")


def test_play_and_pause_are_the_state(player):
    player.play()
    assert player.status == "running" and player.playing
    player.stage.playing = False # as the browser says it
    assert player.status == "idle" and not player.playing
    player.go_to(899)
    player.play()
    assert player.frame == 0


# What the browser asks for

def test_the_pieces_are_the_poses():
    player = Player(video(frames=1300), pair=PAIR)
    messages = sent(player)
    for k in range(3): player.stage.answer({"want": k})
    assert [m["piece"] for m, _ in messages] == [0, 1, 2]
    whole = np.frombuffer(b"".join(bytes(b) for _, b in messages), "<f4")
    assert np.array_equal(whole.reshape(player.rec.xy.shape), player.rec.xy)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["want", "video", "strips"]), st.one_of(
    st.integers(), st.text(), st.none(), st.lists(st.integers()), st.floats())))
def test_no_message_breaks_the_stage(message):
    messages = sent(PLAYED)
    PLAYED.stage.answer(message)
    assert len(messages) <= 1
    for m, *_ in messages: assert "strips" in m or 0 <= m["piece"] * PIECE < len(SHORT)


def test_a_video_underneath(tmp_path):
    data = b"\0\0\0\x18ftypmp42" + bytes(range(256)) * 5000
    (tmp_path/"a.mp4").write_bytes(data)
    player = Player(video(), pair=PAIR, video=tmp_path/"a.mp4")
    messages, count = sent(player), player.stage.about["video"]
    for k in range(count + 1): player.stage.answer({"video": k})
    assert b"".join(b for _, b in messages) == data and count == len(messages) == 2
    assert max(len(b) for _, b in messages) == VIDEO_PIECE
    (tmp_path/"b.avi").write_bytes(b"RIFF1234AVI ")
    for bad, why in (("b.avi", "no mp4"), ("c.mp4", "there is no video"), ("", "no video")):
        with pytest.raises(ConfigError, match=why): video_pieces(tmp_path/bad)
    assert not Player(video(), pair=PAIR).stage.about["video"]


# Pages

def test_pages_follow_the_frame():
    player = Player(long(video()), pair=PAIR)
    still = dict(player.stage.strips)
    player.go_to(1799)
    assert player.stage.strips == still
    player.step(1)
    assert player.span == (1800, 3600) and player.stage.strips != still
    player.page_box.value = 0
    assert player.span == (0, 36_000)
    player.page_box.value = 10
    assert player.span == (1800, 2100)
    player.go_to(35_999)
    assert player.span == (35_700, 36_000) and player.frame == 35_999


def test_strips_are_as_wide_as_the_page():
    player = Player(video(), pair=PAIR)
    heights = {}
    for width in (400, 1600):
        player.stage.width = width
        svg, left, right = (player.stage.strips[k] for k in ("svg", "left", "right"))
        wide, high = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
        assert wide == pytest.approx(width * 0.75) and 0 < left < 0.35 and 0.9 < right <= 1
        assert high == heights.setdefault("", high) # letters keep their size


def test_little_is_saved_however_long_the_video():
    player = Player(long(video(mice=4)))
    state = sum(len(str(w.get_state())) for w in below(player.box))
    assert state < 250_000 # all that a saved notebook could hold
    json.dumps(player.stage.get_state(["about", "bouts", "errors", "pair"]))


# What is odd

def test_missing_points_are_not_drawn():
    rec = video()
    rec.xy[0, 0] = np.nan
    rec.xy[0, 1, 3] = np.nan
    assert "nan" not in figure_svg(plot_pose(rec, 0)[0]).lower().replace("nano", "")
    lost = rec.replace(xy=np.full_like(rec.xy, np.nan))
    player = Player(lost, pair=PAIR)
    player.step(10)
    assert player.frame == 10 and "nan" not in player.stage.strips["svg"]
    json.dumps(player.stage.about, allow_nan=False)


def test_stray_points_do_not_shrink_the_room():
    rec = video()
    before = extent(rec)
    rec.xy[::100, 0, 0] = 1e6
    assert np.allclose(extent(rec), before, rtol=0.3, atol=20)


def test_a_single_animal():
    rec = make_recording(seed=1, frames=90, mice=1)
    player = Player(rec)
    assert player.pair == ("mouse1", "mouse1") and "alone" in player.pair_box.label
    assert Player(rec.replace(labelled=None, bouts=bout_table())).pair == player.pair


def test_no_bouts_and_no_labels():
    rec = video().replace(bouts=bout_table(), labelled=None)
    player = Player(rec)
    player.step_bout(1)
    player.step_bout(-1)
    assert player.frame == 0 and player.stage.bouts == {"annotated": []}
    player.play()
    assert len(player.pair_box.options) == 6
    assert Player(rec.replace(labelled=frozenset())).pair in strips.pairs_of(rec, {})
    assert Player(rec, {}).stage.bouts == {}


def test_nothing_to_show_is_refused():
    rec = video()
    for bad in (rec.replace(xy=rec.xy[:0]), rec.replace(xy=rec.xy[:, :0], mice=())):
        with pytest.raises(DataError, match="video 1.*nothing to show"): Player(bad)
    with pytest.raises(ConfigError, match="mouse1, mouse2"):
        Player(rec, pair=("mouse1", "mouse22"))


def test_parts_that_nobody_knows_are_points():
    assert skeleton(tuple("abcdefg")) == []
    rec = video().replace(parts=tuple("abcdefg"))
    about = Player(rec).stage.about
    assert about["lines"] == [] == about["head"] and len(about["parts"]) == 7
    assert Player(video()).stage.about["lines"]


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_are_text():
    rec = video(frames=90)
    mice = (NASTY, "mouse2", "鼠" * 60)
    bouts = bout_table([(NASTY, "mouse2", NASTY, 3, 30)])
    rec = rec.replace(mice=mice, bouts=bouts, labelled=None, video_id=NASTY)
    player = Player(rec, {NASTY: bouts}, pair=(NASTY, "mouse2"))
    player.go_to(5)
    assert "<img" not in player.stage.strips["svg"]
    element(player.stage.strips["svg"])
    assert NASTY in player.stage.who and NASTY in player.stage.about["mice"]
    for label in (error_row(NASTY), player.pair_box.label): assert NASTY in label
    strips_ = [player.picture(), plot_pose(rec, 3)]
    for figure, _ in strips_: assert "<img" not in inline_svg(figure)


def error_row(name):
    errors = worst_errors([prediction(name)])
    return ErrorPanel(errors, {}, []).rows[0].description


@settings(max_examples=8, deadline=None)
@given(st.text(max_size=30))
def test_any_name_keeps_the_page_whole(name):
    rec = SHORT.replace(mice=(name, name + "'"), labelled=None,
                        bouts=bout_table([(name, name + "'", name, 1, 9)]))
    player = Player(rec, pair=(name, name + "'"))
    player.go_to(3)
    assert player.stage.bouts == {"annotated": [[name, 1, 9]]}
    assert player.stage.strips["svg"].count("<svg") == 1 and name in player.stage.who



# Pictures

def test_long_curves_keep_their_peaks():
    values = np.zeros(36_000)
    values[12_345] = 7
    at, low, high = strips.envelope(values, 0, 36_000)
    assert high.max() == 7 and low.max() == 0 and len(at) <= 1500
    values[12_000:13_000] = np.nan
    at, low, high = strips.envelope(values, 0, 36_000)
    assert np.isnan(high).sum() > 30 and np.nanmax(high) == 0
    at, low, high = strips.envelope(values, 5, 9)
    assert at.tolist() == [5, 6, 7, 8]


def test_ribbons_tell_unknown_from_absent():
    labels = np.array([[0, -1]] * 30, np.int8)
    labels[5:10, 0] = 1
    _, ax = strips.plot_probabilities(np.full((30, 2), 0.5), ["a", "b"], 30, labels)
    styles = {line.get_ydata()[0]: line.get_linestyle() for line in ax.lines}
    assert styles[1.09] == "-" and styles[0.09] != "-"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    bars = [p.get_extents() for c in ax.collections for p in c.get_paths()]
    assert any(abs(b.x0 - 5 / 30) < 1e-9 and abs(b.x1 - 10 / 30) < 1e-9 for b in bars)


def test_ribbons_show_what_is_probable_where_nothing_was_predicted():
    p = np.zeros((30, 3), np.float32)
    p[10:20, 1] = 0.36 # a doubt, and no bout
    about = PairPrediction("1", "a", "b", 30., ("sniff", "attack", "chase"), p,
                           np.full(30, -1), np.full((30, 3), -1, np.int8))
    figure = Figure()
    ribbon_strip([about], lambda pair: ["chase"]).draw(ax := figure.subplots(), ("a", "b"), 0, 30)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["attack", "chase"]


def test_an_ethogram_of_many_actions_has_those_that_happen():
    rec = make_recording(1, 300)
    many = [f"action {k:02}" for k in range(40)]
    rec = rec.replace(bouts=bout_table([(*rec.mice[:2], many[7], 5, 9)]), labelled=frozenset(
        (*rec.mice[:2], a) for a in many))
    strips.ethogram_strip(rec).draw(ax := Figure().subplots(), rec.mice[:2], 0, 300)
    assert [t.get_text().split("  ")[0] for t in ax.get_yticklabels()] == [many[7]]


def test_no_two_of_24_animals_look_the_same():
    looks = {(COLORS[i % len(COLORS)], mark_of(i)) for i in range(24)}
    assert len(looks) == 24 and len({mark_of(i) for i in range(4)}) == 4


def test_ribbons_of_a_page_show_the_truth_of_that_page():
    labels = np.zeros((300, 1), np.int8)
    labels[150:200] = 1
    _, ax = strips.plot_probabilities(np.zeros((300, 1)), ["a"], 30, labels, 100, 250)
    bars = [p.get_extents() for c in ax.collections for p in c.get_paths()]
    assert any(abs(b.x0 - 5) < 1e-9 and abs(b.x1 - 200 / 30) < 1e-9 for b in bars)
    assert ax.get_xlim() == (100 / 30, 250 / 30)


@pytest.mark.parametrize("name", ["{}", "a name of 16 {:02}", "WWWWWWWWWWWWW{:02}"])
@pytest.mark.parametrize("wide", [5, 9])
def test_the_names_of_shaded_actions_are_in_the_picture(name, wide):
    "Long ones lay outside of it, and of many the title was lost."
    bouts = bout_table([("m", "n", name.format(i), 30 * i, 30 * i + 20) for i in range(28)])
    figure, ax = strips.plot_feature(np.arange(900.), "speed", "cm/s", 30, bouts)
    if wide == 5: # half of it, in axes of another's
        figure = Picture(figsize=(wide, 4), layout="constrained")
        ax = strips.plot_feature(np.arange(900.), "speed", "cm/s", 30, bouts, stop=180,
                                 ax=figure.subplots())[1]
    FigureCanvasAgg(figure).draw()
    names = ax.get_legend().get_texts()
    assert len(names) == (6 if wide == 5 else 28) and ax.get_title("left" if wide == 9 else "center") == "speed"
    assert all(figure.bbox.x0 <= b.x0 and b.x1 <= figure.bbox.x1 and b.y1 <= figure.bbox.y1
               for b in (n.get_window_extent() for n in names))
    assert ax.get_window_extent().height > 80


def test_values_by_behaviour_leave_the_unknown_out():
    values = np.arange(6.0)
    values[1] = np.nan
    labels = np.array([[1], [1], [1], [0], [-1], [0]], np.int8)
    parts = strips.by_behaviour(values, labels, ["a"])
    assert parts["a"].tolist() == [0, 2] and parts["none of them"].tolist() == [3, 5]


def test_a_channel_without_a_value_says_so():
    nothing, _ = strips.plot_feature(np.full(60, np.nan), "speed", "cm/s", 30)
    assert [t.get_text() for t in nothing.axes[0].texts] == ["no value here"]
    assert not strips.plot_feature(np.ones(60), "speed", "cm/s", 30)[1].texts


def test_pictures_are_labelled_and_follow_the_page():
    rec = video()
    labels = frame_labels(rec, *PAIR, ["sniff", "chase"])
    values = rec.xy[:, 0, 0, 0].astype(float)
    made = [plot_pose(rec, 3), strips.plot_feature(values, "x", "px", 30, rec.bouts),
            strips.plot_by_behaviour(values, "x", "px", labels, ["sniff", "chase"]),
            strips.plot_probabilities(np.ones((900, 2)), ["a", "b"], 30)]
    for figure, ax in made:
        assert ax.get_xlabel() and ax.get_ylabel() and ax.get_title(loc="left")
        assert figure.get_label() and "currentColor" in inline_svg(figure)
        assert "(px)" in ax.get_xlabel() + ax.get_ylabel() or "cm" in ax.get_xlabel() \
            or "(s)" in ax.get_xlabel()
    figure, axes = strips.plot_moment(rec, 40, PAIR)
    assert len(axes) == 2 and axes[1].get_xlim() == (0, 30)
    assert "<style" not in inline_svg(figure)


# Errors

def prediction(name="a", fps=30.0):
    labels = np.zeros((90, 2), np.int8)
    labels[10:40, 0] = 1
    p = np.full((90, 2), 0.1)
    p[20:30, 1] = 0.8
    p[60:80, 0] = 0.7
    codes = np.where(p.max(1) > 0.5, p.argmax(1), -1)
    return PairPrediction(name, name, "t", fps, ("x", name), p, codes, labels)


def test_kinds_and_order_of_errors():
    table = worst_errors([prediction("v")])
    said = table[["kind", "annotated", "predicted", "start", "stop"]].values.tolist()
    assert said == [["missed", "x", "nothing", 30, 40], ["missed", "x", "nothing", 10, 20],
                    ["false alarm", "nothing", "x", 60, 80],
                    ["confused", "x", "v", 20, 30]] or said[0][0] == "false alarm"
    worth = table.seconds * table.confidence
    assert (worth.diff().dropna() <= 1e-9).all() and table.kind[0] == "false alarm"
    assert table.set_index("kind").confidence["confused"] == 0.8
    assert len(worst_errors([prediction("v")], 2)) == 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 60))
def test_errors_cover_exactly_the_wrong_frames(seed, actions, frames):
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 2, (frames, actions)).astype(np.int8)
    codes = rng.integers(-1, actions, frames)
    wrong = set()
    for f in range(frames):
        seen, said = labels[f] == 1, codes[f]
        if said >= 0 and labels[f, said] == 0: wrong.add(f)
        if seen.any() and (said < 0 or labels[f, said] != 1): wrong.add(f)
    found = error_runs(labels, codes)
    frames_ = [f for *_, a, b in found for f in range(a, b)]
    assert sorted(frames_) == sorted(wrong)
    for kind, seen, said, a, b in found:
        assert (seen < 0) == (kind == 1) and all(codes[a:b] == said)
        if kind: assert (labels[a:b, said] == 0).all()
        if seen >= 0: assert (labels[a:b, seen] == 1).all()


def test_an_error_opens_in_the_player():
    rec = video(video_id="v")
    one = prediction("v")
    made = [PairPrediction("v", *PAIR, 30.0, one.actions, *(np.resize(x, (900, *x.shape[1:]))
            for x in (one.p, one.codes, one.labels)))]
    errors = worst_errors(made)
    listed = ErrorPanel(errors, {"v": rec}, made)
    assert len(listed.rows) == len(errors)
    listed.rows[4].click()
    assert [i for i, r in enumerate(listed.rows) if r.button_style] == [4]
    assert listed.status == "done" and listed.player.pair == PAIR
    assert listed.player.frame == max(errors.start[4] - 30, 0)
    assert listed.player.sources["predicted"].equals(predicted_bouts(made, "v"))
    assert listed.player.stage.errors == sorted(e.start for e in errors.itertuples()) or \
        set(errors.start) <= set(listed.player.stage.errors)
    assert listed.player_box.children == (listed.player.body,)
    control_names(listed.box)
    failing = ErrorPanel(errors, {}, made)
    failing.go()
    assert failing.status == "error" and not failing.rows[0].disabled


# Explorer

def test_explorer_follows_channel_and_pair():
    rec = video(frames=300)
    explorer = Explorer(rec, "social", PAIR)
    first = explorer.spread.value, explorer.player.stage.strips
    explorer.channel.value = explorer.channel.options[5]
    assert explorer.status == "done" and explorer.spread.value != first[0]
    assert explorer.player.stage.strips != first[1]
    kept = explorer.channel.value
    explorer.player.pair_box.value = ("mouse2", "mouse3")
    assert explorer.status == "done" and explorer.channel.value == kept
    assert repr(("mouse2", "mouse3")) in explorer.code()
    control_names(explorer.box)


@pytest.mark.parametrize("width", [3.3, 9.4])
@pytest.mark.parametrize("count", [1, 6, 24])
def test_explorer_of_many_actions_can_be_read_in_a_narrow_window(count, width):
    rec = video(frames=300)
    rec = rec.replace(labelled=None, bouts=bout_table(
        (*PAIR, f"action_{i:02}_of_a_long_name", 12 * i, 12 * i + 9) for i in range(count)))
    explorer = Explorer(rec, "social", PAIR, "pair.relative_speed.mean8000")
    figure, axes = strips.page_figure(explorer.player.scene, explorer.player.strips, PAIR,
                                      0, 300, width, arena=False)
    figure.draw_without_rendering()
    lanes, curve = (ax.get_window_extent().height / figure.dpi for ax in axes)
    assert curve > 0.8 and lanes / count > 0.1
    title = axes[1]._left_title.get_window_extent()
    names = [t.get_window_extent() for t in axes[1].get_legend().get_texts()]
    assert len(names) == count and not any(title.overlaps(name) for name in names)
    assert title.x1 <= figure.bbox.width and max(n.x1 for n in names) <= figure.bbox.width


def test_explorer_says_what_is_wrong():
    with pytest.raises(ConfigError, match="channel"): Explorer(video(frames=60), "coords",
                                                               channel="nothing")
    with pytest.raises(ConfigError, match="social"): Explorer(video(frames=60), "socal")

    def fails(pair):
        if pair != PAIR: raise DataError("has no features", "x.npy")
        from mabe_nb.data.features import compute
        return compute(rec, "coords", pair)
    rec = video(frames=60)
    explorer = Explorer(rec, fails, PAIR)
    explorer.player.pair_box.value = ("mouse2", "mouse1")
    assert explorer.status == "error" and "x.npy" in explorer.error
    explorer.player.pair_box.value = PAIR
    assert explorer.status == "done"
