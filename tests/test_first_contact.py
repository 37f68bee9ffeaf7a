"Folders as laboratories have them, where names, observers and events contradict one another."
import pytest
from test_open_folder import recording, write_dlc

from mabe_nb.data.dataset import open_dataset
from mabe_nb.data.folder.match_files import match_files

HEAD = ("Observation id,FPS (frame/s),Subject,Behavior,Behavior type,Time,Media file name")


def write_events(path, observation, *bouts, film=None):
    "Events of one observation as BORIS exports them; bouts of subject, action, start and stop in s."
    rows = [f"{observation},30,{who},{what},{status},{t},/films/{film or observation}.mp4"
            for who, what, *span in bouts for t, status in zip(span, ("START", "STOP"))]
    path.write_text("\n".join([HEAD, *rows]) + "\n")


@pytest.fixture
def lab(tmp_path):
    "Two videos of two animals."
    for k, video in enumerate(("v1", "v2")): write_dlc(tmp_path, video, recording(k))
    (tmp_path/"dataset.yaml").write_text("fps: 30\nalone: [rear]\n")
    return tmp_path


def sentences(folder): return match_files(open_dataset(folder)).sentences


def test_a_table_called_as_another_video_than_it_is_of_is_told(lab):
    for name, of, at in (("v1", "v2", 1), ("v2", "v1", 3)):
        write_events(lab/f"{name}.csv", of, ("black", "rear", at, at + 1))
    assert not any(len(rec.bouts) for rec in open_dataset(lab))
    assert any("v1.csv holds the observation 'v2', which is of v2, while the file is called as v1"
               in s for s in sentences(lab))
    for name in ("v1", "v2"): write_events(lab/f"{name}.csv", name, ("black", "rear", 1, 2))
    assert [len(rec.bouts) for rec in open_dataset(lab)] == [1, 1]


@pytest.mark.parametrize("name", ["session 7", "2"]) # as the scorer counted, or by the film
def test_a_table_whose_observation_has_a_name_of_its_own_is_read(lab, name):
    write_events(lab/"v1.csv", name, ("black", "rear", 1, 2), film="v1")
    assert [len(rec.bouts) for rec in open_dataset(lab)] == [1, 0]
