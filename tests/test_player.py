"The player, its pictures and its companions, driven by their state alone."
import asyncio
import html
import re
import xml.etree.ElementTree as ET

import ipywidgets as W
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from traitlets import TraitError

from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.recording import bout_table, frame_labels, of_pair
from mabe_nb.errors import ConfigError, DataError
from mabe_nb.view.video import strips
from mabe_nb.view.video.explorer import Explorer
from mabe_nb.view.video.inline import inline_svg
from mabe_nb.view.panels.panel import control_names
from mabe_nb.view.video.player import Player
from mabe_nb.view.report import figure_svg
from mabe_nb.view.video.scene import extent, plot_pose, scene_of, scene_svg, skeleton
from mabe_nb.view.video.prediction_errors import (ErrorPanel, Prediction, error_runs,
                                      predicted_bouts, worst_errors)

NASTY = '<img src=x onerror=alert(1)>"\'&$x^2$'
PAIR = ("mouse1", "mouse2")


def long(rec, times=40): return rec.replace(xy=np.tile(rec.xy, (times, 1, 1, 1)))


def video(**how): return make_recording(**{"seed": 3, "frames": 900, "mice": 3} | how)


@pytest.fixture
def player(): return Player(video(), pair=PAIR)


def shown(player):
    "The frame that the picture says it shows."
    return int(re.search(r'data-frame="(\d+)"', player.moving.value)[1])


def element(text): return ET.fromstring(re.sub(r"xlink:", "", text))


def below(widget):
    yield widget
    for child in getattr(widget, "children", ()): yield from below(child)


# Moving

def test_every_control_has_a_name_and_a_tooltip(player):
    found = [w for w in below(player.box) if isinstance(w, (W.Button, W.ValueWidget))
             and not isinstance(w, W.HTML)]
    assert len(found) == 11 and len({w.description for w in found}) == len(found)
    for w in found: assert w.description.strip() and w.tooltip.strip(), w
    assert {"Play", "Frame", "Speed", "Pair", "Time shown", "Next bout"} <= set(
        control_names(player.box))


def test_a_frame_is_shown_by_whatever_sets_it(player):
    player.frame_box.value = 100
    assert player.frame == shown(player) == 100
    player.step(-1)
    assert shown(player) == 99
    player.go_to(5)
    player.step(-100)
    assert shown(player) == 0
    player.frame_box.value = 10**7 # as typed
    assert shown(player) == 899
    assert "0:29.97 of 0:30.00" in player.status_line.value


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
    assert "mouse2 → mouse1" in html.unescape(player.status_line.value)
    assert player.actions_now() == {"seen": sorted(of_pair(player.rec.bouts, *other).query(
        "start <= @player.frame < stop").action)}
    with pytest.raises((TraitError, TypeError)): player.pair_box.value = ("mouse1", "mouse7")


def test_the_clock_decides_and_a_stall_is_not_made_up(player):
    player.clock = lambda: now
    now = 0.0
    player.play()
    assert player.status == "running" and player.toggle.description == "Pause"
    for now in (0.05, 0.1, 0.2): player.tick()
    assert player.frame == 6
    player.speed_box.value = 4
    now = 0.3
    player.tick()
    assert player.frame == 18
    now = 60.0
    player.tick()
    assert player.frame == 18 + 30
    player.go_to(500) # while it plays
    now += 0.1
    player.tick()
    assert player.frame == 512
    player.pause()
    now += 1
    player.tick()
    assert player.frame == 512 and player.status == "idle"


def test_slow_play_adds_up_parts_of_frames(player):
    player.clock = lambda: now
    now = 0.0
    player.speed_box.value = 0.1
    player.play()
    for k in range(1, 101):
        now = k * 0.025
        player.tick()
    assert player.frame == 7 # 2.5 s at 3 frames a second


def test_play_ends_at_the_end_and_begins_anew(player):
    player.clock = lambda: now
    now = 0.0
    player.go_to(898)
    player.play()
    now = 0.2
    player.tick()
    assert player.frame == 899 and player.status == "idle"
    assert player.toggle.description == "Play"
    player.play()
    assert player.frame == 0


def test_a_running_loop_beats():
    async def watch():
        player = Player(video(fps=100), pair=PAIR)
        player.play()
        await asyncio.sleep(0.5)
        player.pause()
        stopped = player.frame
        await asyncio.sleep(0.1)
        return stopped, player.frame
    stopped, later = asyncio.run(watch())
    assert stopped == later and 10 < stopped <= 60


def test_a_fault_while_playing_is_shown():
    async def watch():
        player = Player(video(fps=100), pair=PAIR)
        player.scene = None
        player.play()
        await asyncio.sleep(0.2)
        return player
    player = asyncio.run(watch())
    assert player.status == "error" and "NoneType" in player.error
    assert player.toggle.description == "Play"


def test_announced_only_while_nothing_plays(player):
    assert 'role="status"' in player.status_line.value
    player.play()
    assert 'role="status"' not in player.status_line.value
    player.pause()
    assert 'role="status"' in player.status_line.value


# The mouse

def press(player, x, y, kind="mousedown", buttons=1, width=540):
    player.on_mouse({"type": kind, "buttons": buttons, "relativeX": x * width / 540,
                    "relativeY": y * width / 540, "boundingRectWidth": width})


@pytest.mark.parametrize("width", (540, 400, 1200))
def test_press_and_drag_along_a_strip(player, width):
    x0, kx, top, high = player.lanes[0]
    press(player, x0 + kx * 10.01, top + 1, width=width)
    assert player.frame == 300
    press(player, x0 + kx * 20.01, top - 90, "mousemove", width=width)
    assert player.frame == 600
    press(player, x0 + kx * 5, top, "mousemove", buttons=0, width=width)
    assert player.frame == 600
    press(player, x0 + kx * 5, top, "mousemove", width=width) # not from a strip
    assert player.frame == 600 and "mousemove" not in player.mouse.watched_events
    press(player, -50, top + 1, width=width)
    assert player.frame == 0 and "mousemove" in player.mouse.watched_events
    press(player, 9, top + 1, "mouseleave", width=width)
    assert player.frame == 0 and "mousemove" not in player.mouse.watched_events


def test_a_press_among_the_animals_does_nothing(player):
    x, y, w, h = player.arena_box
    press(player, x + w / 2, y + h / 2)
    press(player, x + w / 2, player.lanes[0][2] + 1, "mousemove")
    assert player.frame == 0


def test_a_drag_ends_play_and_stays_on_the_page():
    player = Player(long(video(), 10), pair=PAIR)
    assert player.span == (0, 1800)
    player.play()
    x0, kx, top, _ = player.lanes[0]
    press(player, 10**6, top + 1)
    assert player.frame == 1799 and player.status == "idle"


# Pages

def test_pages_follow_the_frame():
    player = Player(long(video()), pair=PAIR)
    still = player.still.value
    player.go_to(1799)
    assert player.still.value == still
    player.step(1)
    assert player.span == (1800, 3600) and player.still.value != still
    player.page_box.value = 0
    assert player.span == (0, 36_000)
    player.page_box.value = 10
    assert player.span == (1800, 2100)
    player.go_to(35_999)
    assert player.span == (35_700, 36_000) and shown(player) == 35_999


def test_a_frame_is_a_few_kilobytes_however_long_the_video():
    player = Player(long(video(mice=4)))
    size = max(len(player.moving.value) for t in range(0, 36_000, 3000)
               if player.go_to(t) is None)
    assert size < 6000 and len(player.still.value) < 200_000
    state = sum(len(str(w.get_state())) for w in below(player.box))
    assert state < 250_000 # all that a saved notebook could hold


# What is odd

def test_missing_points_are_not_drawn():
    rec = video()
    scene = scene_of(rec)
    whole = scene_svg(scene, 0, (0, 0, 1, 1))
    rec.xy[0, 0] = np.nan
    rec.xy[0, 1, 3] = np.nan
    part = scene_svg(scene, 0, (0, 0, 1, 1))
    assert "nan" not in part and part.count("M") < whole.count("M") - 7
    assert part.count("translate") == 2
    number = r"-?\d+\.\d"
    for path in re.findall('<path d="([^"]*)" stroke-width="2"', part):
        assert re.fullmatch(f"(M{number} {number}L{number} {number})*", path)
    assert "nan" not in figure_svg(plot_pose(rec, 0)[0]).lower().replace("nano", "")
    lost = rec.replace(xy=np.full_like(rec.xy, np.nan))
    player = Player(lost, pair=PAIR)
    player.step(10)
    assert shown(player) == 10 and "nan" not in player.still.value + player.moving.value


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
    assert player.frame == 0 and "nothing" in player.status_line.value
    player.play()
    assert len(player.pair_box.options) == 6
    assert Player(rec.replace(labelled=frozenset())).pair in strips.pairs_of(rec, {})
    assert Player(rec, {}).actions_now() == {}


def test_nothing_to_show_is_refused():
    rec = video()
    for bad in (rec.replace(xy=rec.xy[:0]), rec.replace(xy=rec.xy[:, :0], mice=())):
        with pytest.raises(DataError, match="video 1.*nothing to show"): Player(bad)
    with pytest.raises(ConfigError, match="mouse1, mouse2"):
        Player(rec, pair=("mouse1", "mouse22"))


def test_parts_that_nobody_knows_are_points():
    assert skeleton(tuple("abcdefg")) == []
    rec = video().replace(parts=tuple("abcdefg"))
    text = scene_svg(scene_of(rec), 0, (0, 0, 1, 1))
    assert "L" not in text and text.count("h0") == 21 and "translate" not in text
    assert "L" in scene_svg(scene_of(video()), 0, (0, 0, 1, 1))


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_are_text():
    rec = video(frames=90)
    mice = (NASTY, "mouse2", "鼠" * 60)
    bouts = bout_table([(NASTY, "mouse2", NASTY, 3, 30)])
    rec = rec.replace(mice=mice, bouts=bouts, labelled=None, video_id=NASTY)
    player = Player(rec, {NASTY: bouts}, pair=(NASTY, "mouse2"))
    player.go_to(5)
    for text in (player.still.value, player.moving.value, player.status_line.value):
        assert "<img" not in text
    assert html.escape(NASTY) in player.status_line.value
    element(player.moving.value), element(player.still.value)
    for label in (error_row(NASTY), player.pair_box.label): assert NASTY in label
    strips_ = [player.picture(), plot_pose(rec, 3)]
    for figure, _ in strips_: assert "<img" not in inline_svg(figure)


def error_row(name):
    errors = worst_errors([prediction(name)])
    return ErrorPanel(errors, {}, []).choice.label


@settings(max_examples=8, deadline=None)
@given(st.text(max_size=30))
def test_any_name_keeps_the_page_whole(name):
    rec = SHORT.replace(mice=(name, name + "'"), labelled=None,
                        bouts=bout_table([(name, name + "'", name, 1, 9)]))
    player = Player(rec, pair=(name, name + "'"))
    player.go_to(3)
    assert player.status_line.value.count("<") == 2 and player.actions_now() == {"seen": [name]}
    assert player.moving.value.count("<svg") == 2


SHORT = make_recording(seed=2, frames=30)


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


def test_ribbons_tell_unknown_from_not_seen():
    labels = np.array([[0, -1]] * 30, np.int8)
    labels[5:10, 0] = 1
    _, ax = strips.plot_probabilities(np.full((30, 2), 0.5), ["a", "b"], 30, labels)
    styles = {line.get_ydata()[0]: line.get_linestyle() for line in ax.lines}
    assert styles[1.09] == "-" and styles[0.09] != "-"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    bars = [p.get_extents() for c in ax.collections for p in c.get_paths()]
    assert any(abs(b.x0 - 5 / 30) < 1e-9 and abs(b.x1 - 10 / 30) < 1e-9 for b in bars)


def test_ribbons_of_a_page_show_the_truth_of_that_page():
    labels = np.zeros((300, 1), np.int8)
    labels[150:200] = 1
    _, ax = strips.plot_probabilities(np.zeros((300, 1)), ["a"], 30, labels, 100, 250)
    bars = [p.get_extents() for c in ax.collections for p in c.get_paths()]
    assert any(abs(b.x0 - 5) < 1e-9 and abs(b.x1 - 200 / 30) < 1e-9 for b in bars)
    assert ax.get_xlim() == (100 / 30, 250 / 30)


def test_values_by_behaviour_leave_the_unknown_out():
    values = np.arange(6.0)
    values[1] = np.nan
    labels = np.array([[1], [1], [1], [0], [-1], [0]], np.int8)
    parts = strips.by_behaviour(values, labels, ["a"])
    assert parts["a"].tolist() == [0, 2] and parts["none of them"].tolist() == [3, 5]


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
    return Prediction(name, name, "t", fps, ("x", name), p, codes, labels)


def test_kinds_and_order_of_errors():
    table = worst_errors([prediction("v")])
    said = table[["kind", "seen", "predicted", "start", "stop"]].values.tolist()
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
    made = [Prediction("v", *PAIR, 30.0, one.actions, *(np.resize(x, (900, *x.shape[1:]))
            for x in (one.p, one.codes, one.labels)))]
    errors = worst_errors(made)
    listed = ErrorPanel(errors, {"v": rec}, made)
    assert len(listed.choice.options) == len(errors)
    listed.choice.value = 4
    listed.go()
    assert listed.status == "done" and listed.player.pair == PAIR
    assert listed.player.frame == max(errors.start[4] - 30, 0)
    assert listed.player.sources["predicted"].equals(predicted_bouts(made, "v"))
    assert listed.player_box.children == (listed.player.body,)
    control_names(listed.box)
    failing = ErrorPanel(errors, {}, made)
    failing.go()
    assert failing.status == "error" and not failing.choice.disabled


# Explorer

def test_explorer_follows_channel_and_pair():
    rec = video(frames=300)
    explorer = Explorer(rec, "social", PAIR)
    first = explorer.spread.value, explorer.player.still.value
    explorer.channel.value = explorer.channel.options[5]
    assert explorer.status == "done" and explorer.spread.value != first[0]
    assert explorer.player.still.value != first[1]
    kept = explorer.channel.value
    explorer.player.pair_box.value = ("mouse2", "mouse3")
    assert explorer.status == "done" and explorer.channel.value == kept
    assert repr(("mouse2", "mouse3")) in explorer.code()
    control_names(explorer.box)


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
