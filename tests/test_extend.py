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
