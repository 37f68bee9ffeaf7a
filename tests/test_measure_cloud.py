"Sweeps and comparisons through the stand-in for Modal: real client, real container code."
import pytest

modal = pytest.importorskip("modal")
pytest.importorskip("mabe_nb.remote.places.modal")
from modal_jobs import calm, cloud  # noqa: E402, F401

from mabe_nb.measure import results  # noqa: E402
from mabe_nb.measure.compare import compare  # noqa: E402
from mabe_nb.measure.workload import Workload  # noqa: E402
from mabe_nb.measure.sweep import sweep  # noqa: E402
from mabe_nb.remote.job import jobs, quote  # noqa: E402
from mabe_nb.train.config import TrainConfig  # noqa: E402

pytestmark = pytest.mark.cloud
TINY = TrainConfig(model_type="tcn", hidden_size=16, num_layers=2, sequence_length=20,
                   batch_size=8)


def test_cards_at_once_one_without_capacity_and_a_sweep(cloud, monkeypatch):
    "Measured where there is a card, told where there is none, paid once."
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    places = ["modal:T4", "modal:L4", "local:cpu"]
    said = []
    table = compare(TINY, Workload(windows=800), places, None, seconds=0.2,
                    say=said.append).set_index("where")
    most = quote("modal", "T4", 900)["most_usd"] + quote("modal", "L4", 900)["most_usd"]
    assert said == [f"at most about {most:.2f} USD: 2 probes of at most 900 s on rented cards"]
    assert table.basis.to_dict() == dict.fromkeys(places[:2], "its processor") | {
        "local:cpu": "measured"}, table.note.tolist()
    assert "on the processor there (" in table.note["modal:T4"]
    assert (table.paid[places[:2]] > 0).all() and table.usd["local:cpu"] == 0
    cloud.faults.no_capacity |= {"H100"}
    again = compare(TINY, Workload(windows=800), ["modal:H100", *places], None, seconds=0.2,
                    timeout=2).set_index("where")
    assert again.reused[places].all() and again.paid.sum() == 0, again.paid
    assert again.basis["modal:H100"] == "no capacity"
    assert "no card came free in 2 s" in again.note["modal:H100"]
    cloud.faults.no_capacity.clear()
    monkeypatch.setattr(results, "CODE", "result = 1 / 0")
    bad = compare(TINY, Workload(windows=800), ["modal:A10"], None, seconds=0.2)
    assert bad.basis[0] == "error" and "ZeroDivision" in bad.note[0] and bad.paid[0] > 0
    monkeypatch.undo()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = sweep(TINY, sizes=[8, 16], on="modal", gpu="L4", seconds=0.2, say=said.append)
    assert len(said) == 2 and "USD: 1 probe of" in said[1], "what is known costs nothing"
    assert done.rows.status.tolist() == ["ok", "ok"], done.rows.note.tolist()
    assert done.rows.note.str.contains("not on the card, with device 'auto'").all()
    assert done.rows.reused.tolist() == [True, False] and done.about["usd_per_hour"] > 0.5
    with pytest.raises(ZeroDivisionError) as kept: # as a notebook keeps it
        compare(TINY, Workload(windows=800), [places[0], "modal:A10"], None, seconds=0.2,
                each=lambda where, status: 1 / 0)
    assert jobs()[0].status() == "cancelled", kept
