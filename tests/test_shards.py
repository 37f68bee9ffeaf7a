"Preparation in shards, here and at Modal, equals that of one machine byte for byte."

import pytest

modal = pytest.importorskip("modal")
from modal_jobs import calm, cloud  # noqa: E402, F401

from mabe_nb.data.dataset import open_dataset  # noqa: E402
from mabe_nb.data.cache.prepare import prepare  # noqa: E402
from mabe_nb.data.synthetic import write_colony  # noqa: E402
from mabe_nb.errors import ConfigError  # noqa: E402
from mabe_nb.remote.handle import JobError  # noqa: E402
from mabe_nb.remote.job import jobs  # noqa: E402
from mabe_nb.remote.shards import prepare_in_shards  # noqa: E402

COMMAND = ["mabe", "prepare", "{DATA}", "--features", "coords"]


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and not p.name.startswith(".")}


@pytest.fixture(scope="module")
def colony(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colony")/"data"
    write_colony(folder, "kaggle", 5, 0.2, 0)
    return folder


@pytest.mark.cloud
@pytest.mark.parametrize("on", ["local", "modal"])
def test_shards_equal_one_machine(on, cloud, colony, tmp_path):
    said = []
    options = {"gpu": None, "max_containers": 2} if on == "modal" else {}
    number = prepare_in_shards(colony, tmp_path/"out", 3, on, COMMAND, said.append, **options)
    assert number == 5 and said[-1] == "shard 3 of 3: 5 videos so far"
    before = {p: p.stat().st_mtime_ns for p in (tmp_path/"out").rglob("*.npy")}
    data = open_dataset(colony, "train")
    prepare(data, "coords", out=tmp_path/"out", progress=False)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path/"out").rglob("*.npy")}
    prepare(data, "coords", out=tmp_path/"one", progress=False)
    assert contents(tmp_path/"out") == contents(tmp_path/"one")
    assert len(contents(tmp_path/"out")) > 10


@pytest.mark.cloud
def test_a_shard_that_fails_stops_the_others(cloud, colony, tmp_path):
    words = ["sh", "-c", 'case "$3" in 1/3) exit 7;; esac; sleep 60', "sh", "{DATA}"]
    with pytest.raises(JobError, match="exit code 7"):
        prepare_in_shards(colony, tmp_path/"out", 3, "local", words)
    assert sorted(j.status() for j in jobs()[:3]) == ["cancelled", "cancelled", "error"]
    assert list((tmp_path/"out").iterdir()) == []
    with pytest.raises(ConfigError, match="shards is '0'"):
        prepare_in_shards(colony, tmp_path/"out", 0)
