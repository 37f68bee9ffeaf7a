"""Films under the poses: the right picture, the right place, and one sentence for a wrong film."""
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from waiting import until

import mabe_nb as mb
from mabe_nb.analysis.clips import frame_drawer, with_confidence, write_clips
from mabe_nb.view.video.film import Film, write_film
from mabe_nb.view.video.stage import FilmStretches, Stage, about_scene
from mabe_nb.analysis.measures import observe
from mabe_nb.cli import main
from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.films import find_films
from mabe_nb.data.folder.match_files import match_files
from mabe_nb.data.recording import Recording, bout_table
from mabe_nb.errors import DataError
from mabe_nb.train.model import PairDecision
from mabe_nb.view.video.scene import scene_of

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="pip install imageio-ffmpeg")
WIDTH, HEIGHT, FRAMES = 320, 192, 90


BITS = 8


def numbered(count=FRAMES):
    "Pictures that tell their number, a bright column for each of its bits."
    for i in range(count):
        bits = np.repeat([i >> k & 1 for k in range(BITS)], WIDTH // BITS)
        yield np.broadcast_to(bits[None, :, None].astype(np.uint8) * 255, (HEIGHT, WIDTH, 3))


def numbers(pictures):
    return [sum(int(c.mean() > 128) << k for k, c in enumerate(np.split(p, BITS, 1)))
            for p in pictures]


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    path = tmp_path_factory.mktemp("film")/"counted.mp4"
    write_film(path, numbered(), 25.0)
    return path


@pytest.mark.parametrize("start, stop, step", [(0, 5, 1), (1, 9, 1), (37, 60, 2), (40, 71, 3),
                                               (3, 90, 7), (89, 90, 1)])
@pytest.mark.parametrize("fps", [25.0, 30.0])
def test_the_picture_is_that_of_the_frame(counted, start, stop, step, fps):
    "By its number, whatever rate somebody wrote down for the poses."
    found = numbers(Film(counted, FRAMES).pictures(start, stop, fps, step))
    assert found == list(range(start, stop, step))


def test_the_picture_is_that_of_the_time_where_numbers_differ(counted):
    "Poses of every second frame."
    assert numbers(Film(counted, FRAMES // 2).pictures(5, 20, 12.5)) == list(range(10, 40, 2))


@pytest.mark.parametrize("codec, name", [("libx264", "x.mkv"), ("mpeg4", "x.avi"),
                                         ("libvpx-vp9", "x.webm")])
def test_films_of_other_kinds(tmp_path, codec, name):
    writer = imageio_ffmpeg.write_frames(str(tmp_path/name), (WIDTH, HEIGHT), fps=25, codec=codec)
    writer.send(None)
    for p in numbered(): writer.send(np.ascontiguousarray(p))
    writer.close()
    assert numbers(Film(tmp_path/name, FRAMES).pictures(50, 60, 25)) == [*range(50, 60)]


def test_a_film_that_ends_before_the_poses(counted):
    assert len(list(Film(counted, 200).pictures(80, 120, 25))) == 10
    assert not list(Film(counted, 200).pictures(150, 160, 25))


def test_a_list_of_other_films_is_none(tmp_path, counted):
    "Of a manifest that names a film by its whole path, which is not opened."
    assert len(list(Film(counted).pictures(0, 10, 25))) == 10
    (tmp_path/"x.webm").write_text(
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT3S" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011">'
        '<Period><AdaptationSet mimeType="video/mp4"><Representation id="1" bandwidth="1000" '
        f'width="{WIDTH}" height="{HEIGHT}"><BaseURL>{counted}</BaseURL><SegmentBase '
        'indexRange="0-100"/></Representation></AdaptationSet></Period></MPD>')
    with pytest.raises(DataError, match="x.webm: cannot be read as a film"): Film(tmp_path/"x.webm")


def test_what_is_no_film(tmp_path):
    for name, content in (("a.mp4", b""), ("b.mp4", b"text\n" * 99), ("c.mp4", bytes(5000))):
        (tmp_path/name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: cannot be read as a film"): Film(tmp_path/name)
    (tmp_path/"d.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n"
                                  "http://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(DataError, match="d.mp4: cannot be read as a film"): Film(tmp_path/"d.mp4")
    (tmp_path/"loop.mp4").symlink_to(tmp_path/"loop.mp4")
    for name in ("gone.mp4", "loop.mp4"):
        with pytest.raises(DataError, match=f"{name}: "): Film(tmp_path/name)


# under the poses

def spot(frame): return np.array([40 + 2 * frame, 60 + frame]) # Where the animal is in the film


def colony(video="cage1", frames=FRAMES, scale=1.0, **more):
    xy = np.stack([[[spot(i)], [spot(i) + [10, 40]]] for i in range(frames)]).astype(np.float32)
    return Recording(xy * np.float32(scale), ("a", "b"), ("nose",), 30.0, None, bout_table(
        [("a", "b", "sniff", 30, 60), ("a", "b", "sniff", 5, 15), ("b", "b", "rear", 70, 75)]),
        frozenset({("a", "b", "sniff"), ("b", "b", "rear")}), video, **more)


def film_of(path, frames=FRAMES):
    "Grey, with a white spot where the first animal is."
    def picture(i):
        p = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
        x, y = spot(i)
        p[y - 5:y + 6, x - 5:x + 6] = 255
        return p
    write_film(path, map(picture, range(frames)), 30.0)
    return path


def test_animals_are_drawn_where_the_film_has_them(tmp_path):
    rec = colony()
    films = {"cage1": film_of(tmp_path/"any.mp4")}
    done = write_clips([rec], observe([rec]).bouts, tmp_path/"out", most=1, around_s=0.2, films=films)
    assert done.film.tolist() == ["any.mp4"] and done.file.tolist() == ["cage1-30-60.mp4"]
    clip = list(Film(tmp_path/"out"/done.file[0]).pictures(0, 999, 30.0))
    assert len(clip) == 42 and clip[0].shape == (HEIGHT, WIDTH, 3)
    for k, picture in enumerate(clip):
        x, y = spot(24 + k)
        around = picture[y - 5:y + 6, x - 5:x + 6].astype(int)
        assert around[[0, 0, -1, -1], [0, -1, 0, -1]].min() > 180, k # The white of the film
        assert np.ptp(around[4:7, 4:7], axis=-1).mean() > 60, k # and the colour of the point
        assert abs(int(picture[150, 10].mean()) - 90) < 12


def test_poses_of_a_film_that_was_shown_smaller(tmp_path):
    "Tracked at twice the size, which the recording knows."
    rec = colony(scale=2.0, meta={"width": 2 * WIDTH, "height": 2 * HEIGHT})
    film = Film(film_of(tmp_path/"f.mp4"), len(rec))
    picture, (x, y) = np.zeros((HEIGHT, WIDTH, 3), np.uint8), spot(50)
    drawn = frame_drawer(rec, film=film)(50, picture=picture)
    assert drawn[y, x].max() > 100 and drawn.shape == picture.shape
    with pytest.raises(DataError, match="f.mp4: is 320 x 192 pixels, but the poses reach to 456 x 378"):
        frame_drawer(colony(scale=2.0), film=film)
    with pytest.raises(DataError, match="is 320 x 192 pixels, but the poses were tracked in 640 x 640"):
        frame_drawer(colony(meta={"width": 640, "height": 640}), film=film)
    with pytest.raises(DataError, match="give the film that was tracked; .* draws the poses alone"):
        write_clips([colony(scale=2.0)], observe([rec]).bouts, tmp_path/"out", films={"cage1": film.path})


def lab(folder, films=True):
    "A lab's folder: DeepLabCut files, and films beside them."
    folder.mkdir(parents=True)
    for k in (1, 2):
        xy = np.array([spot(i) for i in range(FRAMES)], float)
        rows = ["scorer,net,net,net", "bodyparts,nose,nose,nose", "coords,x,y,likelihood",
                *(f"{i},{x},{y},1" for i, (x, y) in enumerate(xy))]
        (folder/f"cage{k}DLC_resnet50.csv").write_text("\n".join(rows) + "\n")
        (folder/f"cage{k}_rear.csv").write_text(
            "agent,target,action,start,stop\nmouse1,mouse1,rear,10,40\n")
        if films: film_of(folder/f"cage{k}.mp4")
    (folder/"dataset.yaml").write_text("fps: 30\nactions: [rear]\n")
    return folder


@pytest.mark.slow
def test_films_beside_the_poses_are_found(tmp_path, capsys):
    data = open_dataset(lab(tmp_path/"lab"))
    assert {v: f.name for v, f in find_films(data, data.ids).items()} == {
        "cage1": "cage1.mp4", "cage2": "cage2.mp4"}
    assert match_files(data).table.film.tolist() == ["cage1.mp4", "cage2.mp4"]
    assert find_films([colony()], ["cage1"]) == {} and find_films(data, data.ids, {}) == {}
    (tmp_path/"elsewhere").mkdir()
    with pytest.raises(DataError, match="holds no film of these videos; looked for cage1, cage2"):
        find_films(data, data.ids, tmp_path/"elsewhere")
    with pytest.raises(DataError, match="folder of films not found"):
        find_films(data, data.ids, tmp_path/"nowhere")
    for films in ("x" * 300, "", 3):
        with pytest.raises(DataError, match="films is .*, expected the name of a folder or file"):
            find_films(data, data.ids, films)
    (tmp_path/"lab"/"cage2.mp4").rename(tmp_path/"elsewhere"/"cage2.mp4")
    table = pd.DataFrame([(v, "mouse1", "self", "rear", 10, 40) for v in data.ids], columns=[
        "video_id", "agent_id", "target_id", "action", "start_frame", "stop_frame"])
    table.insert(0, "row_id", range(2))
    table.to_csv(tmp_path/"sub.csv", index=False)
    for more, films in ((), {"cage1.mp4", ""}), (["--films", str(tmp_path/"elsewhere")],
                                                 {"cage2.mp4", ""}), (["--films", "none"], {""}):
        assert main(["clips", str(tmp_path/"sub.csv"), str(tmp_path/"lab"), "--json", "--overwrite",
                     "--out", str(tmp_path/"out"), *more]) == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert {c["film"] for c in told["clips"]} == films
        assert told["films"] == len(films - {""}) and len(told["clips"]) == 2


# the surest

def test_how_sure_a_run_is_of_a_bout():
    rec, p = colony(), np.zeros((FRAMES, 2), np.float32)
    p[30:60, 0], p[5:15, 0], p[10, 0] = 0.75, 0.875, 0.5
    told = [PairDecision("cage1", "a", "b", 30.0, ("sniff", "rear"), p, p > 0.5)]
    found = with_confidence(observe([rec]).bouts, told).set_index(["action", "start"]).confidence
    assert found["sniff", 1.0] == 0.75
    assert found["sniff", 5 / 30] == pytest.approx((9 * 0.875 + 0.5) / 10)
    assert np.isnan(found["rear", 70 / 30])


@pytest.mark.slow
def test_the_surest_come_first_and_nobody_is_sure_of_annotations(tmp_path, capsys):
    colony = open_dataset(mb.write_colony(tmp_path/"colony", videos=6, minutes=0.5))
    data, run = str(tmp_path/"colony"), str(tmp_path/"run")
    assert main(["train", data, "--out", run, "--epochs", "6", "--hidden-size", "16",
                 "--num-layers", "2", "--learning-rate", "0.01", "--device", "cpu"]) == 0
    capsys.readouterr()
    words = ["clips", run, data, "--out", str(tmp_path/"out"), "--json", "--overwrite"]
    assert main([*words, "--most-sure", "3"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["clips"]
    sure, decisions = [c["confidence"] for c in told], []
    assert len(sure) == 3 and sure == sorted(sure, reverse=True)
    model = mb.load_model(run)
    seen = observe(colony, model.predict(colony, each=decisions.append)).bouts
    best = with_confidence(seen, decisions).confidence.nlargest(3)
    assert sure == pytest.approx(best.tolist())
    assert main([*words, "--most", "2", "--most-sure", "3"]) == 2
    assert "not both" in capsys.readouterr().err
    words[1] = "annotations"
    assert main([*words, "--most-sure", "3"]) == 2 and "needs a run" in capsys.readouterr().err



# a film that no browser can be sent

@pytest.fixture
def stage(tmp_path):
    "A film of 40 s in an `.avi`, and what is sent to the browser."
    writer = imageio_ffmpeg.write_frames(str(tmp_path/"long.avi"), (WIDTH, HEIGHT), fps=10, codec="mpeg4")
    writer.send(None)
    for p in numbered(400): writer.send(np.ascontiguousarray(p)) # its number, of 256
    writer.close()
    xy = np.random.default_rng(0).uniform(10, 180, (400, 1, 3, 2)).astype(np.float32)
    stage = Stage(scene_of(Recording(xy, ("a",), ("nose", "neck", "tail_base"), 10.0)), tmp_path/"long.avi")
    stage.said = []
    stage.send = lambda message, buffers=(): stage.said.append(
        (message, *map(bytes, buffers)))
    return stage


def shown(stage, tmp_path):
    "First and last frame of the stretch that was told of last, and the numbers in it."
    for _ in range(500):
        if stage.said and not stage.stretches.busy: break
        time.sleep(0.01)
    told = stage.said[-1][0]
    assert told["size"] == [WIDTH, HEIGHT]
    for k in range(told["film"]): stage.answer({"video": k})
    (tmp_path/"got.mp4").write_bytes(b"".join(x for m, *b in stage.said if "video" in m for x in b))
    stage.said.clear()
    return told["first"], told["last"], numbers(Film(tmp_path/"got.mp4").pictures(0, 999, 10.0))


@pytest.mark.slow
def test_seconds_of_a_film_around_the_frame(stage, tmp_path):
    assert stage.about["film"] and not stage.about["video"]
    stage.answer({"film": 0}) # as the page does when it is drawn
    assert shown(stage, tmp_path) == (0, 250, [i % 256 for i in range(250)])
    stage.frame = 200
    assert shown(stage, tmp_path) == (0, 250, [i % 256 for i in range(250)])
    stage.frame = 215 # soon over
    assert shown(stage, tmp_path) == (165, 400, [i % 256 for i in range(165, 400)])
    stage.frame = 399
    assert shown(stage, tmp_path)[:2] == (165, 400)
    stage.answer({"film": -7})
    assert shown(stage, tmp_path)[:2] == (0, 250)
    assert len([*Path(stage.stretches.folder.name).iterdir()]) == 1


def test_a_large_film_is_sent_smaller_and_drawn_as_it_was(tmp_path):
    large = (np.full((1088, 1920, 3), 9, np.uint8) for _ in range(20))
    write_film(tmp_path/"large.mp4", large, 10.0)
    got, stretches = [], FilmStretches(tmp_path/"large.mp4", colony(frames=20))
    stretches.around(0, lambda *said: got.append((Film(said[0]).size, *said[1:])), print)
    for _ in range(1000):
        if got: break
        time.sleep(0.01)
    assert got == [((960, 544), 0, 20, [1920, 1088])]
    assert about_scene(scene_of(colony()))["picture"] is None
    tracked = colony(meta={"width": 640, "height": 480})
    assert about_scene(scene_of(tracked))["picture"] == [640, 480]


def test_of_many_wishes_the_last_one_counts(stage, tmp_path):
    for frame in (10, 390, 20, 380): stage.frame = frame
    first, last, _ = shown(stage, tmp_path)
    assert first <= 380 < last


def test_a_film_that_cannot_be_read_is_told_in_the_picture(tmp_path):
    (tmp_path/"bad.avi").write_bytes(b"RIFF" + bytes(99))
    for name, words in (("bad.avi", "bad.avi: cannot be read as a film"), ("gone.mp4", "file not found")):
        stage, said = Stage(scene_of(colony()), tmp_path/name), []
        stage.send = lambda message, buffers=(): said.append(message)
        stage.answer({"film": 3})
        for _ in range(500):
            if said: break
            time.sleep(0.01)
        assert words in said[0]["lost"]


def test_a_film_that_cannot_be_read_is_tried_once(tmp_path, monkeypatch):
    from mabe_nb.view.video import stage as pages
    (tmp_path/"bad.avi").write_bytes(b"RIFF" + b"x" * 5000)
    begun, lost = [], []
    monkeypatch.setattr(pages, "Film", lambda *a: begun.append(a) or Film(*a))
    rec = Recording(np.zeros((400, 1, 1, 2), np.float32), ("a",), ("nose",), 10.0)
    stretches = FilmStretches(tmp_path/"bad.avi", rec)
    for frame in range(5):
        stretches.around(frame, None, lost.append)
        until(lambda: not stretches.busy)
    assert len(begun) == len(lost) == 1
