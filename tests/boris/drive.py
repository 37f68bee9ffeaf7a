"""Drive BORIS: open a project, look at it, export and save it. Run by BORIS's own Python, with
its window off the screen: python drive.py PROJECT.boris OUT. What it saw goes to OUT/seen.json."""
import json
import os
import sys
from pathlib import Path

project, out = sys.argv[1], Path(sys.argv[2])
sys.argv[1:] = []  # BORIS reads them too
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["HOME"] = str(out/"home")  # Where BORIS keeps its settings

from boris import core, dialog, export_events, import_observations, version  # noqa: E402
from boris import config as cfg  # noqa: E402
from boris import observation_operations as observing  # noqa: E402
from boris import project_functions as projects  # noqa: E402


class Answers:
    "What a person would click; messages are kept."
    said = []

    def __init__(self, *text, **_): self.said.append(" ".join(str(t) for t in text[1:3]))

    def exec_(self): return 1

    exec = exec_

    @staticmethod
    def get_selected_observations(): return Answers.chosen

    @staticmethod
    def message(_, text, buttons):
        Answers.said.append(text)
        return {"Import observation", cfg.YES}.intersection(buttons).pop()


def answer_dialogs(pj, form):
    "Choose all observations, subjects and behaviours, the whole film (or from event to event), files of one form in OUT."
    Answers.chosen = sorted(pj["observations"])
    later = any(o["time offset"] for o in pj["observations"].values())  # than the film ends
    everything = {
        cfg.SELECTED_SUBJECTS: [s["name"] for s in pj["subjects_conf"].values()],
        cfg.SELECTED_BEHAVIORS: [b["code"] for b in pj["behaviors_conf"].values()],
        "time": cfg.TIME_EVENTS if later else cfg.TIME_FULL_OBS}
    export_events.select_observations.select_observations2 = lambda *_, **__: ("", Answers.chosen)
    export_events.select_subj_behav.choose_obs_subj_behav_category = lambda *_, **__: everything
    export_events.QInputDialog.getItem = staticmethod(lambda *_: (form, True))
    files = export_events.QFileDialog
    files.getExistingDirectory = staticmethod(lambda *_, **__: str(out/"events"))
    files.getSaveFileName = staticmethod(lambda *_, **__: (str(out/"bouts"), form))
    dialog.MessageDialog, dialog.ChooseObservationsToImport = Answers.message, Answers
    import_observations.QMessageBox.information = staticmethod(
        lambda *text: Answers.said.append(text[-1]))


def main():
    app = core.QApplication.instance() or core.QApplication([])
    path, changed, pj, message = projects.open_project_json(project)
    if "error" in pj: sys.exit(pj["error"])
    core.MainWindow.no_first_launch_dialog = True
    window = core.MainWindow("ffmpeg")
    window.load_project(path, changed, pj)
    rows = {}
    for name in pj["observations"]:
        if said := observing.load_observation(window, name, cfg.VIEW): sys.exit(said)
        rows[name] = window.tv_events.model().rowCount() if hasattr(window, "tv_events") \
            else window.twEvents.rowCount()
        window.observationId = ""
    (out/"events").mkdir()
    for form in (cfg.CSV, cfg.TSV):
        answer_dialogs(pj, form)
        export_events.export_tabular_events(window)
        export_events.export_aggregated_events(window)
    window.save_project_json(str(out/"saved.boris"))
    window.pj = pj | {"observations": {}}
    window.projectFileName = ""
    import_observations.load_observations_from_boris_project(window, project)
    seen = {
        "version": version.__version__, "changed": changed, "message": message, "rows": rows,
        "integrity": projects.check_project_integrity(pj, cfg.HHMMSS, path, False),
        "behaviours": {b["code"]: b["type"] for b in pj["behaviors_conf"].values()},
        "in_window": [window.twEthogram.rowCount(), window.twSubjects.rowCount()],
        "subjects": [s["name"] for s in pj["subjects_conf"].values()],
        "imported": sorted(window.pj["observations"]), "said": Answers.said,
        "observations": {
            name: {"events": [[float(e[0]), *e[1:4]] for e in o["events"]],
                   "fps": [*o.get("media_info", {}).get("fps", {}).values()],
                   "seconds": float(observing.observation_total_length(o))}
            for name, o in pj["observations"].items()}}
    (out/"seen.json").write_text(json.dumps(seen, indent=1))
    del app


if __name__ == "__main__": main()
