"What one registration from outside adds, in under 25 lines, and the command line then uses."
import numpy as np

from mabe_nb.cli import main
from mabe_nb.data.colony.recording import make_recording


def write_ours(folder, rec):
    "A video as a tracker of our own writes it, and a BORIS table of it."
    np.savetxt(folder/f"{rec.video_id}.ours", np.nan_to_num(rec.xy.reshape(len(rec), -1)))
    rows = [(frame / rec.fps, rec.fps, b.agent, b.action, status)
            for b in rec.bouts.itertuples()
            for frame, status in ((b.start, "START"), (b.stop, "STOP"))]
    lines = ["Time,FPS,Subject,Behavior,Behavior type"]
    lines += [",".join(map(str, row)) for row in sorted(rows)]
    (folder/f"{rec.video_id}.boris.csv").write_text("\n".join(lines))


def test_tracker_format(tmp_path, monkeypatch, capsys):
    from mabe_nb.data.poses import TRACKERS, Points, tracker
    monkeypatch.setenv("MABE_HOME", str(tmp_path/"home"))
    monkeypatch.setitem(TRACKERS, "Ours", None) # and out again when the test ends

    @tracker("Ours", [".ours"])
    def read_ours(path):
        xy = np.loadtxt(path).reshape(-1, 2, 3, 2)
        return Points(xy, None, ["mouse1", "mouse2"], ["nose", "neck", "tail_base"])

    folder = tmp_path/"lab"
    folder.mkdir()
    looked_for = {("mouse1", "mouse2", x) for x in ("chase", "sniff")}
    for k in range(1, 5):
        write_ours(folder, make_recording(k, 900, parts=("nose", "neck", "tail_base"),
                                          labelled=looked_for, video_id=f"cage{k}"))
    out = str(tmp_path/"run")
    assert main(["train", str(folder), "--out", out, "--epochs", "1", "--device", "cpu",
                 "--valid-videos", "cage4"]) == 0
    assert "3 videos to learn from, 1 to judge by" in capsys.readouterr().out
    assert main(["audit", str(tmp_path/"home")]) == 2 # no such files there


def test_block(tmp_path, monkeypatch, capsys):
    from mabe_nb.data.blocks.registry import BLOCKS, block, named
    from mabe_nb.data.cache.reader import open_prepared
    from mabe_nb.data.synthetic import write_colony
    monkeypatch.setitem(BLOCKS, "mynew", None) # and out again when the test ends

    @block(needs=("own",))
    def mynew(pair, own):
        return named("cm2/s2", speed_squared=own["speed"].values**2)

    write_colony(tmp_path/"lab", videos=4, minutes=0.2)
    data, features = str(tmp_path/"lab"), ["--features", "mynew+coords"]
    assert main(["prepare", data, *features, "--out", str(tmp_path/"cache")]) == 0
    done = open_prepared(tmp_path/"cache")
    assert done.names[:2] == ["agent.speed_squared", "target.speed_squared"]
    assert done.roles[:4] == ["value", "value", "x", "y"]
    assert main(["train", data, *features, "--out", str(tmp_path/"run"), "--epochs", "1",
                 "--device", "cpu", "--num-layers", "1"]) == 0
    assert main(["predict", str(tmp_path/"run"), data, "--out", str(tmp_path/"s.csv")]) == 0
    assert main(["prepare", data, "--features", "mynwe"]) == 2
    assert "did you mean 'mynew'? (a block of your own: " in capsys.readouterr().err
