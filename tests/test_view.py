"""Pictures have labels, reports escape what they show, and no file is half-written."""
import base64
import importlib
import inspect
import io
import pkgutil
import re
import threading
import warnings
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations

import matplotlib.image
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import rgb_to_hsv, to_rgb
from matplotlib.figure import Figure

from mabe_nb.analysis.figures import plot_budgets, plot_raster
from mabe_nb.analysis.measures import observe
from mabe_nb.data.audit import audit
from mabe_nb.data.colony.recording import make_recording
from mabe_nb.data.dataset import RecordingList
from mabe_nb.data.recording import bout_table
from mabe_nb.errors import DataError
from mabe_nb import view
from mabe_nb.view.colors import COLORS
from mabe_nb.view import fonts, plots
from mabe_nb.measure.sweep import Sweep
from mabe_nb.view.cost_plots import plot_compare, plot_sweep
from mabe_nb.view.demo import plot_predicted
from mabe_nb.view.report import clock_words, figure_svg, numbers_html, page_html, write_report
from mabe_nb.view.style import INK, Picture, styled
from mabe_nb.view.video.scene import plot_pose
from mabe_nb.view.video.explorer import Explorer
from mabe_nb.view.video.strips import (plot_by_behaviour, plot_feature, plot_moment,
                                       plot_probabilities)

NASTY = "<script>alert(1)</script>"
PAIR = ("mouse1", "mouse2")
VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    "Checks nesting and notes tags and attributes."

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID: self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data): self.words += data
    def all(self, tag): return [a for t, a in self.tags if t == tag]


def history(n=6):
    e = np.arange(1, n + 1)
    return pd.DataFrame({"epoch": e, "train_loss": 1 / e, "valid_loss": 1.1 / e,
                         "valid_macro_f1": 0.9 - 0.1 * abs(e - 4), "seconds": 1.0})


def scores(lab="Lab", action="sniff"):
    return {"score": 0.5, "labs": {lab: {"score": 0.5, "actions": {action: 0.5}}}}


def pictures(name="sniff", **ax):
    "One of each kind, with `name` wherever a name goes."
    rec = make_recording(seed=1, frames=600, messy=True, video_id=name, lab_id=name)
    table = bout_table([("mouse1", "mouse2", name, 30, 60)])
    square = pd.DataFrame([[8, 2], [1, 9]], [name, "none"], [name, "none"])
    report = audit([rec])
    report = type(report)(report.table, name, report.videos, report.frames)
    return {"audit": plots.plot_audit(report, **ax),
            "ethogram": plots.plot_ethogram({"truth": table, name: table}, 30, **ax),
            "confusion": plots.plot_confusion(square, **ax),
            "tracks": plots.plot_tracks(rec, 0, 300, **ax),
            "scores": plots.plot_scores(scores(name, name), 0.1, **ax)}


def test_every_picture_has_labels_a_title_and_words():
    for name, (figure, ax) in pictures().items():
        assert ax.get_xlabel() and ax.get_title(loc="left") and figure.get_label(), name
    figure, (left, right) = plots.plot_learning_curve(history())
    assert left.get_ylabel() == "loss" and right.get_ylabel() == "macro F1"
    assert left.get_legend() and "in epoch 4" in figure.get_label()


def test_a_title_is_beside_the_legend_in_a_style_of_ones_own():
    "Other styles put titles in the middle, where the legend stands."
    with matplotlib.style.context("dark_background"):
        assert pictures(ax=Figure().subplots())["audit"][1].get_title("left") == "Audit of sniff"


def test_kinds_of_defects_are_of_colours_unlike_each_other():
    kinds = [rgb_to_hsv(to_rgb(color)) for color, _ in plots.SEVERITY.values()]
    apart = [min(abs(a[0] - b[0]), 1 - abs(a[0] - b[0])) for a, b in combinations(kinds, 2)]
    assert min(apart) > 0.05 and len({hatch for _, hatch in plots.SEVERITY.values()}) == 3


def test_units_are_in_the_labels():
    made = pictures()
    assert made["ethogram"][1].get_xlabel() == "time (s)"
    assert made["tracks"][1].get_xlabel() == "x (cm)"
    rec = make_recording(seed=1, frames=60).replace(px_per_cm=None)
    assert plots.plot_tracks(rec)[1].get_ylabel() == "y (pixels)"


def test_ethogram_lanes_times_and_limits():
    table = bout_table([("m", "m", "rear", 30, 90), ("m", "m", "sniff", 300, 330)])
    _, ax = plots.plot_ethogram({"truth": table, "predicted": table.head(1)}, 30,
                                actions=["sniff", "rear"], start=60, stop=150)
    assert [t.get_text().split() for t in ax.get_yticklabels()] == [
        ["sniff", "truth"], ["predicted"], ["rear", "truth"], ["predicted"]]
    spans = [p.get_extents() for c in ax.collections for p in c.get_paths()]
    assert [(s.x0, s.x1) for s in spans] == [(2, 3), (2, 3)] and ax.get_xlim() == (2, 5)


def test_confusion_rows_add_up_to_one():
    table = pd.DataFrame([[30, 10], [0, 0]], ["a", "b"], ["a", "b"])
    _, ax = plots.plot_confusion(table)
    assert [t.get_text() for t in ax.texts] == ["0.75", "0.25", "–", "–"]


def test_scores_show_each_value_and_chance():
    _, ax = plots.plot_scores(scores(), 0.1)
    assert {t.get_text() for t in ax.texts} == {"0.50", "chance 0.10"}
    _, ax = plots.plot_scores(scores())
    assert {t.get_text() for t in ax.texts} == {"0.50"}


def test_an_ethogram_counts_what_it_shows_and_is_no_page_of_many_megabytes():
    table = bout_table([("m", "m", "rear" if i % 2 else "sniff", 3 * i, 3 * i + 2) for i in range(20_000)])
    figure, ax = plots.plot_ethogram(table, 30, ["rear"], 0, 600)
    assert figure.get_label().endswith("bouts: 100 bouts")
    assert len(figure_svg(plots.plot_ethogram(table, 30)[0])) < 1e6


def test_an_ethogram_of_two_hours_is_as_full_as_the_animal_was_busy():
    "Bouts of a second were lines of a pixel, and 600 of them filled the lane."
    at = np.sort(np.random.default_rng(0).choice(6_000, 600, replace=False)) * 36
    table = bout_table([("m", "m", "sniff", t, t + 30) for t in at]) # 8 % of the time
    figure, ax = plots.plot_ethogram(table, 30, start=0, stop=216_000)
    assert ax.get_title("left") == "Ethogram; low: share of 14 s"
    assert inked(figure, ax) < 0.25
    figure, ax = plots.plot_ethogram(table.head(1), 30, start=0, stop=216_000)
    assert 0 < inked(figure, ax) # a lone one is seen
    _, ax = plots.plot_ethogram(table, 30, start=0, stop=1800)
    assert ax.get_title("left") == "Ethogram"


def inked(figure, ax):
    "Share of a picture of one lane that has a colour."
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    left, low, right, high = ax.transData.transform(
        [(0, 0.42), (ax.get_xlim()[1], -0.42)]).round().astype(int).ravel()
    seen = np.asarray(canvas.buffer_rgba()).astype(int)[::-1, :, :3]
    return (np.ptp(seen[low:high, left:right], axis=2) > 60).mean()


def contrast(a, b):
    "As WCAG 2 has it, from 1 to 21."
    light = [np.dot(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4),
                    [0.2126, 0.7152, 0.0722]) for c in map(np.array, (a, b))]
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_a_grid_is_fainter_than_what_it_helps_to_read_on_either_page():
    "On a dark page it was brighter than words and curves."
    _, (ax, _) = plots.plot_learning_curve(history())
    line = ax.yaxis.get_gridlines()[0]
    for paper in (1.0, 17 / 255): # JupyterLab's
        drawn = [paper + line.get_alpha() * (c - paper) for c in to_rgb(line.get_color())]
        assert 1.2 < contrast(drawn, [paper] * 3) < 0.6 * contrast(to_rgb(INK), [paper] * 3)


def test_every_animal_can_be_seen_on_a_white_and_on_a_dark_page():
    "Yellow was 1.3 to 1 on white."
    for color in COLORS:
        for paper in (1.0, 17 / 255): # JupyterLab's
            assert contrast(to_rgb(color), [paper] * 3) >= 3, (color, paper)


def test_numbers_in_a_table_can_be_read_on_every_shade():
    "White on a middle blue was 2.9 to 1."
    share = np.linspace(0, 1, 30)
    table = pd.DataFrame(np.round(1e4 * np.c_[share, 1 - share]), columns=["a", "b"])
    _, ax = plots.plot_confusion(table)
    image, = ax.images
    for text in ax.texts:
        x, y = text.get_position()
        ground = image.to_rgba(image.get_array())[y, x, :3]
        assert contrast(to_rgb(text.get_color()), ground) >= 4.5, text.get_text()


def test_what_differs_in_colour_differs_in_a_line_or_a_mark_too():
    "For those who see no colours, and in a print: the first animals and groups."
    rec = make_recording(seed=1, frames=60, mice=4)
    _, ax = plots.plot_tracks(rec)
    assert len({line.get_linestyle() for line in ax.get_lines()[::3][:4]}) == 4
    cases = pd.DataFrame([(g, str(k), "sniff", k) for g in "abcd" for k in range(3)],
                         columns=["group", "unit", "action", "value"])
    keys = plot_budgets(cases)[1].get_legend().legend_handles
    assert len({key.get_marker() for key in keys}) == 4


def test_the_best_epoch_of_the_curve_is_the_one_that_a_run_keeps():
    nothing = history(4).assign(valid_macro_f1=0.0, valid_loss=[0.9, 0.5, 0.7, 0.8])
    assert "Best F1 0.000 in epoch 2" in plots.plot_learning_curve(nothing)[0].get_label()


def test_the_paths_of_all_animals_have_a_name_and_a_look_of_their_own():
    names = ["_hidden", "x" * 60, *"abcdefgh"]
    rec = make_recording(seed=1, frames=60)
    rec = rec.replace(xy=np.tile(rec.xy[:, :1], (1, 10, 1, 1)), mice=tuple(names), bouts=bout_table(), labelled=None)
    _, ax = plots.plot_tracks(rec)
    lines = {t.get_text().strip(): (h.get_color(), h.get_linestyle()) for t, h in zip(
        ax.get_legend().get_texts(), ax.get_legend().legend_handles)}
    assert "_hidden" in lines and max(map(len, lines)) < 30
    assert len({look for name, look in lines.items() if name not in ("begin", "end")}) == 10


def test_the_mean_of_a_dataset_without_a_lab_has_a_name():
    _, ax = plots.plot_scores(scores(""))
    assert ax.get_yticklabels()[0].get_text() == "(no name): mean"


def test_pictures_of_nothing_say_so():
    assert "nothing" in plots.plot_audit(audit([]))[0].get_label()
    assert "no bouts" in plots.plot_ethogram({}, 30)[0].get_label()
    assert "no scores" in plots.plot_scores({"score": 0, "labs": {}})[0].get_label()
    assert "No epoch" in plots.plot_learning_curve(history(0))[0].get_label()


def drawn_names(figure):
    figure.draw_without_rendering()
    return [t.get_text() for ax in figure.axes for t in (
        *ax.get_xticklabels(), *ax.get_yticklabels(),
        *(ax.get_legend().get_texts() if ax.get_legend() else ()))]


def test_names_that_differ_in_their_middle_are_told_apart():
    walls = [f"unsupported rearing on the {w} wall of the box" for w in ("north", "south")]
    square, rng = pd.DataFrame([[8, 2], [1, 9]], walls, walls), np.random.default_rng(0)
    table = bout_table([("a", "b", w, 30, 60) for w in walls])
    labels = np.tile(np.array([[1, 0], [0, 1]], np.int8), (30, 1))
    rec = make_recording(seed=1, frames=60).replace(mice=tuple(walls), labelled=None)
    cases = pd.DataFrame([(g, a, i, 0.5) for g in walls for a in walls for i in (1, 2)],
                         columns=["group", "action", "unit", "value"])
    drawn = [plots.plot_confusion(square), plots.plot_ethogram(table, 30),
             plots.plot_scores(scores() | {"labs": {"": {"score": 1, "actions": dict.fromkeys(walls, 1)}}}),
             plots.plot_tracks(rec), plot_pose(rec, 0), plot_budgets(cases),
             plot_probabilities(rng.random((60, 2)), walls, 30),
             plot_feature(rng.random(60), "speed", "cm/s", 30, table),
             plot_by_behaviour(rng.random(60), "speed", "cm/s", labels, walls),
             plot_raster(observe(RecordingList([make_recording(seed=1, frames=90).replace(
                 mice=tuple(walls), bouts=bout_table([(w, w, "rear", 1, 9) for w in walls]),
                 labelled=frozenset((w, w, "rear") for w in walls), video_id="a long name of a video")])))]
    for figure, _ in drawn:
        names = drawn_names(figure)
        for wall in ("north", "south"):
            assert any(wall in name for name in names), (figure.get_label(), names)


def test_epochs_are_whole_numbers_even_if_there_is_but_one():
    for axes in plots.plot_learning_curve(history(1))[1]:
        low, high = axes.get_xlim()
        assert [t for t in axes.get_xticks() if low <= t <= high] == [1]


def test_a_batch_that_did_not_fit_is_marked_in_words_within_the_axes():
    rows = pd.DataFrame({"batch": [16, 32, 64], "status": ["ok", "ok", "oom"], "ms": 1.0, "p10": 1.0,
                         "p90": 1.0, "windows_s": 1e3, "gb": 1.0})
    figure, axes = plot_sweep(Sweep(rows, None, None, 32, {}))
    FigureCanvasAgg(figure).draw()
    for ax in axes:
        text, = ax.texts
        assert text.get_text() == "out of memory"
        assert ax.get_tightbbox().x1 >= text.get_window_extent().x1 and text.get_window_extent().x1 < figure.bbox.x1


def test_a_curve_says_from_when_its_loss_is_no_number():
    lost = history(6).assign(valid_loss=[0.9, 0.8, np.nan, 0.9, np.inf, np.nan])
    assert "no number from epoch 3" in plots.plot_learning_curve(lost)[1][0].get_title("left")
    assert plots.plot_learning_curve(history())[1][0].get_title("left") == "Loss"


def test_of_two_pictures_of_nothing_one_says_so_and_the_other_is_not_there():
    assert not plots.plot_learning_curve(history(0))[1][1].axison
    rows = pd.DataFrame([{"batch": 16, "status": "out of memory"}])
    assert not plot_sweep(Sweep(rows, None, None, None, {}))[1][1].axison


def test_tracks_of_nobody_say_so():
    rec = make_recording(seed=1, frames=60)
    rec = rec.replace(xy=np.full_like(rec.xy, np.nan))
    assert "No animal" in plots.plot_tracks(rec)[0].get_label()


def test_no_number_of_a_score_lies_on_the_line_of_chance():
    actions = {f"action {i}": i / 40 for i in range(41)}
    figure, ax = plots.plot_scores({"score": 1, "labs": {"": {"score": 0.3, "actions": actions}}}, 0.38)
    figure.draw_without_rendering()
    line = ax.transData.transform((0.38, 0))[0]
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text()[0] == "0"]
    assert boxes and not any(box.x0 < line < box.x1 for box in boxes)


def test_nothing_of_a_pose_with_long_names_is_cut_off():
    mice = tuple(f"mouse_{i}_of_a_cage_with_a_long_name" for i in range(8))
    rec = make_recording(seed=1, frames=60)
    rec = rec.replace(xy=np.concatenate([rec.xy[:, :1] + 20 * i for i in range(8)], 1),
                      mice=mice, bouts=bout_table(), labelled=None)
    figure, ax = plot_pose(rec, 10)
    figure.draw_without_rendering()
    for part in (ax.yaxis.label, ax.get_legend()):
        box = part.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_names_of_cards_and_of_sizes_cover_nothing():
    "Ten cards of one time lay over each other and over their ranges; so did twenty sizes."
    names = "T4 L4 A10 A100-40GB L40S A100-80GB RTX-PRO-6000 H100 H200 B200".split()
    cards = pd.DataFrame({"where": [f"modal:{n}" for n in names], "basis": "predicted", "seconds": 0.18,
                          "usd": np.geomspace(1, 4, 10), "pareto": False, "low": 0.05, "high": 0.5})
    figure, ax = plot_compare(cards)
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text().startswith("modal")]
    assert len(boxes) == 10 and all(ax.bbox.count_contains(b.corners()) == 4 for b in boxes)
    assert all(a.count_overlaps([b for b in boxes if b is not a]) == 0 for a in boxes)
    sizes = np.unique(np.geomspace(1, 8192, 25).round())
    rows = pd.DataFrame({"batch": sizes, "status": "ok", "ms": 1.0, "p10": 1.0, "p90": 1.0,
                         "windows_s": sizes * 1e3, "gb": sizes})
    figure, axes = plot_sweep(Sweep(rows, None, None, 512, {}))
    FigureCanvasAgg(figure).draw()
    for ax in axes:
        ticks = [t.get_window_extent() for t in ax.get_xticklabels() if t.get_text()]
        assert len(ticks) > 5 and all(a.x1 < b.x0 for a, b in zip(ticks, ticks[1:]))


def test_what_costs_nothing_has_no_axis_of_dollars():
    table = pd.DataFrame({"where": ["here", "slurm"], "basis": "measured", "seconds": [9.0, 8],
                          "low": 7.0, "high": 9.5, "usd": 0.0, "pareto": True})
    _, ax = plot_compare(table)
    assert not len(ax.get_xticks()) and "USD" not in ax.get_xlabel()
    _, ax = plot_compare(table.assign(usd=[0.0, 0.1]))
    assert len(ax.get_xticks()) and "USD" in ax.get_xlabel()


def test_a_cell_that_ends_with_a_call_shows_the_figure():
    from IPython.core.formatters import DisplayFormatter
    rec = make_recording(seed=1, frames=90)
    submission = pd.DataFrame([(rec.video_id, *PAIR, "rear", 1, 9)], columns=[
        "video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"])
    rec = rec.replace(bouts=bout_table([(*PAIR, "rear", 1, 9)]), labelled=frozenset({(*PAIR, "rear")}))
    drawn = [plots.plot_tracks(rec), plots.plot_learning_curve(history()), plot_moment(rec, 0, PAIR),
             plot_predicted([rec], submission), Explorer(rec, "coords", PAIR).plot()]
    for figure, axes in drawn: assert isinstance(figure, Picture) and axes is not None
    for both in drawn:
        assert {"image/png", "text/html"} <= DisplayFormatter().format(both)[0].keys()
    ax = Figure().subplots()
    assert "image/png" not in DisplayFormatter().format(plots.plot_tracks(rec, ax=ax))[0]


def test_given_axes_are_drawn_into():
    for name in pictures():
        ax = Figure().subplots()
        assert pictures(ax=ax)[name][1] is ax
    pair = Figure().subplots(1, 2)
    assert plots.plot_learning_curve(history(), ax=pair)[1] is pair


def test_nothing_global_is_left_behind():
    before = dict(matplotlib.rcParams)
    pictures()
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in matplotlib.__dict__ or not \
        matplotlib.pyplot.get_fignums()


def test_two_threads_that_draw_keep_their_style_and_leave_none_to_the_notebook():
    before, found = dict(matplotlib.rcParams), []
    begun, also, left = (threading.Event() for _ in range(3))

    @styled
    def first(ax=None):
        begun.set()
        also.wait(0.5) # The other one draws meanwhile, if it can

    @styled
    def second(ax=None):
        also.set()
        left.wait(10)
        found.append(matplotlib.rcParams["axes.titleweight"])

    one = threading.Thread(target=lambda: (first(), left.set()))
    one.start()
    begun.wait(10)
    second()
    one.join()
    assert found == ["bold"] and dict(matplotlib.rcParams) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")
def test_names_are_text_for_matplotlib_too():
    for name in ("$\\frac{1}$", "$", "_x_", NASTY, "a" * 300, "Mäuse 鼠", "\\n%s{}"):
        for figure, _ in pictures(name).values():
            assert "NaN" not in figure_svg(figure)


@pytest.fixture
def fonts_here(monkeypatch):
    "Gives the fonts of the machine, before matplotlib looks at them."
    manager = fonts.font_manager
    monkeypatch.setattr(manager.fontManager, "ttflist", [
        f for f in manager.fontManager.ttflist if f.name not in sum(fonts.FONTS, ())])
    def give(*paths):
        monkeypatch.setattr(manager, "findSystemFonts", lambda: list(map(str, paths)))
        fonts.east_asian_fonts.cache_clear()
    yield give
    fonts.east_asian_fonts.cache_clear()


def scores_of(action):
    return {"score": 1.0, "labs": {"lab": {"score": 1.0, "actions": {action: 1.0}}}}


def one_letter_font(path, name, letter):
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    pen = TTGlyphPen(None)
    for sign, point in zip(("moveTo", "lineTo", "lineTo"), ((0, 0), (900, 0), (450, 800)), strict=True):
        getattr(pen, sign)(point)
    pen.closePath()
    font = FontBuilder(1000)
    font.setupGlyphOrder([".notdef", "one"])
    font.setupCharacterMap({ord(letter): "one"})
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "one": pen.glyph()})
    font.setupHorizontalMetrics({".notdef": (1000, 0), "one": (1000, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": name, "styleName": "Regular", "psName": "OneLetter"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    font.setupPost()
    font.save(path)


def test_letters_of_a_font_that_was_installed_since_are_drawn(tmp_path, fonts_here, caplog):
    one_letter_font(tmp_path/"NotoSansCJK-Regular.ttf", "Noto Sans CJK SC", "\u9f20")
    fonts_here(tmp_path/"NotoSansCJK-Regular.ttf", tmp_path/"cjk-spoilt.ttf")
    (tmp_path/"cjk-spoilt.ttf").write_bytes(b"no font")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure, _ = plots.plot_scores(scores_of("\u9f20"))
        svg = figure_svg(figure)
    assert fonts.east_asian_fonts() == ("Noto Sans CJK SC",)
    assert not [w for w in told if "Glyph" in str(w.message) or "boxes" in str(w.message)]
    assert svg.count('id="OneLetter-1"') == 1
    assert not caplog.records # of a bold that it has not


def test_a_machine_without_a_font_for_a_name_says_so_once(fonts_here):
    fonts_here()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plots.plot_scores(scores_of("K\xe4fig"))
        assert not told
        plots.plot_scores(scores_of("\u9f20"))
    assert {str(w.message) for w in told if "no font" in str(w.message)} == {
        "names with Chinese, Japanese or Korean letters are boxes in figures: this machine has no "
        "font for them; install one, on Debian and Ubuntu fonts-noto-cjk, and draw again"}


def test_a_figure_with_boxes_says_so_once_and_not_for_each_letter(fonts_here):
    fonts_here()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        plots.plot_scores(scores_of("\u55c5\u63a2\u9f20"))[0]._repr_png_()
        plots.plot_scores(scores_of("\u0915"))[0]._repr_png_() # of which nothing else is said
    said = [str(w.message) for w in told]
    assert len(said) == 2 and "no font" in said[0] and "DEVANAGARI" in said[1], said


def sections(name):
    table = pd.DataFrame({"video": [name], name: [0.5], "none": [None]}, index=[name])
    return [(name, [name, {name: name, "score": 0.5, "lost": float("nan")}, table]),
            ("pictures", list(pictures(name).values()))]


def test_what_comes_from_data_is_escaped():
    text = page_html(NASTY, sections(NASTY))
    page = Page(text)
    assert not page.all("script") and "<script" not in text.lower()
    assert page.words.count(NASTY) >= 8
    for image in page.all("img"):
        svg = base64.b64decode(image["src"].split(",")[1]).decode()
        assert "<script" not in svg and ET.fromstring(svg) is not None


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_gives_a_whole_page(name):
    table = pd.DataFrame({name: [name]}, index=[name])
    page = Page(page_html(name, [(name, [name, {name: name}, table])]))
    assert {t for t, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "nav", "ul",
        "li", "a", "main", "section", "h2", "p", "dl", "div", "dt", "dd", "table",
        "thead", "tr", "th", "tbody", "td", "footer"}
    assert all(set(a) <= {"href"} for a in page.all("a"))


def test_numbers_that_round_up_are_written_as_others_are():
    for value, text in ((999.7, "1,000"), (999.4, "999"), (-999.7, "-1,000"), (1234.5, "1,234"), (0.51234, "0.512")):
        assert f"<dd>{text}</dd>" in numbers_html({"x": value})
    assert [clock_words(s) for s in (59.994, 59.996, 119.999, 0)] == ["0:59.99", "1:00.00", "2:00.00", "0:00.00"]


def test_page_has_landmarks_headings_and_alternative_text():
    page = Page(page_html("Title", sections("x")))
    assert page.all("html")[0]["lang"] == "en" and len(page.all("h1")) == 1
    assert all(len(page.all(t)) == 1 for t in ("header", "nav", "main", "footer"))
    ids = [a["id"] for a in page.all("h2")]
    assert [a["aria-labelledby"] for a in page.all("section")] == ids
    assert [a["href"] for a in page.all("a")] == ["#" + i for i in ids]
    assert page.all("img") and all(len(a["alt"]) > 10 for a in page.all("img"))
    assert all(a["scope"] == "col" for a in page.all("th"))


def test_page_needs_nothing_from_outside():
    text = page_html("Title", sections("x"))
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text) and "url(" not in text
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    assert "@import" not in text


def test_figures_follow_light_and_dark():
    svg = figure_svg(pictures()["scores"][0])
    assert "prefers-color-scheme:dark" in svg and "currentColor" in svg
    assert f": {INK}" not in svg and svg == figure_svg(pictures()["scores"][0])


def test_long_tables_say_what_they_leave_out():
    text = page_html("t", [("x", pd.DataFrame({"a": range(1000)}))])
    assert text.count("<tr>") == 201 and "200 of 1,000" in text


def test_a_report_is_whole_or_not_there(tmp_path):
    path = write_report(tmp_path/"deep"/"report.html", "one", [("a", "b")])
    first = path.read_bytes()
    with pytest.raises(TypeError): write_report(path, "two", [("a", ["b", object()])])
    assert path.read_bytes() == first and b"one" in first
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_lone_surrogates_do_not_stop_a_report(tmp_path):
    path = write_report(tmp_path/"r.html", "\ud800", [("\udfff", "x\ud800")])
    assert "</html>" in path.read_text(encoding="utf-8")


def test_no_method_stands_among_the_functions_of_a_module():
    pytest.importorskip("ipywidgets")
    for info in pkgutil.walk_packages(view.__path__, "mabe_nb.view."):
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            public = getattr(module, name)
            if inspect.isfunction(public):
                assert "self" not in inspect.signature(public).parameters, (info.name, name)


def test_a_figure_keeps_the_ground_of_a_dark_style():
    corner = {}
    for style in ("default", "dark_background"):
        with matplotlib.style.context(style):
            png = Picture(figsize=(1, 1))._repr_png_()
        corner[style] = matplotlib.image.imread(io.BytesIO(png))[0, 0]
    assert corner["default"][3] == 0 and (corner["dark_background"] == [0, 0, 0, 1]).all()


def test_what_was_predicted_of_videos_given_as_text():
    recs = [make_recording(seed, 600, video_id=f"{seed}0") for seed in (1, 2)]
    recs[1] = recs[1].replace(bouts=bout_table())
    data = RecordingList(recs, ".", "two")
    submission = recs[0].bouts.set_axis(["agent_id", "target_id", "action", "start_frame",
                                         "stop_frame"], axis=1).assign(video_id="10")
    figure, axes = plot_predicted(data, submission, "10")
    assert axes.get_title("left").endswith("in video 10") and not axes.get_title()
    assert axes.get_xlim() == (0, 600 / recs[0].fps) # the video, not its last bout
    with pytest.raises(DataError, match="no bouts were annotated in video 20"):
        plot_predicted(data, submission, "20")


def test_no_video_is_shown_that_was_not_predicted():
    "With more going on in it than in the one that was, it had 0 bouts predicted."
    recs = [make_recording(seed, 600 * seed, video_id=str(seed)) for seed in (1, 3)]
    bouts = recs[0].bouts.set_axis(["agent_id", "target_id", "action", "start_frame",
                                    "stop_frame"], axis=1).assign(video_id=1)
    figure, axes = plot_predicted(RecordingList(recs, ".", "two"), bouts)
    assert axes.get_title("left").endswith("in video 1")
    with pytest.raises(DataError, match="no annotated video has a predicted bout"):
        plot_predicted(RecordingList(recs[1:], ".", "one"), bouts)


def test_runs_of_the_home_folder(tmp_path, monkeypatch):
    from mabe_nb.view.runs import find_runs
    for name in ("HOME", "USERPROFILE"): monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"mabe"))
    run = tmp_path/"runs"/"one"
    run.mkdir(parents=True)
    for name in ("config.yaml", "log.jsonl"): (run/name).touch()
    assert [*find_runs("~/runs")] == [str(run)]
