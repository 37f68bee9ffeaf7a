"The checks of the house find what they are for, and the README is made as promised."
import json
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

TOP = Path(__file__).resolve().parents[1]


def load(name):
    sys.path.insert(0, str(TOP/".ci"))
    spec = spec_from_file_location(f"house_{name}", TOP/".ci"/f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(TOP/".ci"))
    return module


house, readme, checks = load("notebooks"), load("readme"), load("checks")


def notebook(*cells): return new_notebook(cells=[new_markdown_cell("# x\n> About x."), *cells])


def faults(tmp_path, nb, change=lambda raw: None):
    "Faults of a notebook, after `change` has spoilt its JSON."
    nbformat.write(nb, tmp_path/"x.ipynb")
    raw = json.loads((tmp_path/"x.ipynb").read_text())
    change(raw)
    (tmp_path/"x.ipynb").write_text(json.dumps(raw))
    return house.faults(tmp_path/"x.ipynb")


def stream(text): return new_output("stream", name="stdout", text=text)


def shows(*outputs, source="x"): return notebook(new_code_cell(source, outputs=list(outputs)))


def test_good_notebook(tmp_path):
    (tmp_path/"y.ipynb").write_text("{}")
    good = notebook(
        new_markdown_cell("[y](y.ipynb#a), [as a page](y.html), <https://a.b/work/x>,\n"
                          "`[z](q)` and [here](#x), [there](https://a.b/c.ipynb)"),
        new_code_cell("#| export\nx = 1", outputs=[stream("a/work/b ./tmp/x\n")]))
    assert faults(tmp_path, good) == []


BAD = {
    "does not open": new_notebook(cells=[new_markdown_cell("# x")]),
    "stores an error": shows(new_output("error", ename="E", evalue="", traceback=[])),
    "stores a widget": shows(new_output("display_data", {house.WIDGET: {"model_id": "1"}})),
    "without words": shows(new_output("display_data", {"image/png": "aGk="})),
    "shows a path": shows(stream("in /" + "work/main/x\n")),
    "shows a path of one": shows(new_output("execute_result", {
        "text/html": "<td>'/" + "tmp/x'</td>"})),
    "names a path": notebook(new_code_cell("p = '/" + "home/me'")),
    "bare except": notebook(new_code_cell("try: x\nexcept: y")),
    "star import": notebook(new_code_cell("#| export\nfrom os import *")),
    "exports more than": notebook(new_code_cell("#| export\n" + 41*"x = 1\n")),
    "links to gone.ipynb": notebook(new_markdown_cell("[y](gone.ipynb)")),
    "links to gone.png": notebook(new_markdown_cell("![y](gone.png)")),
    "names _12, which": notebook(new_code_cell("_12, _21 = 1, 2\n{_12: _21}")),
    "leaves something": notebook(new_code_cell("# TO" + "DO: x")),
    "leaves folders behind": notebook(new_code_cell("a = tempfile.mkdtemp()")),
}


@pytest.mark.parametrize("fault", BAD)
def test_each_fault_is_found(tmp_path, fault):
    found = faults(tmp_path, BAD[fault])
    assert len(found) == 1 and fault in found[0]


MIXED = {
    "import os\nx = 1": True, "#| hide\nimport os\nos.getcwd()": True,
    "#| slow\nx = 1; import os": True, "def f():\n    from os import path": True,
    "import os\nfrom json import load": False, "x": False, "%time\nimport os": False,
    "#| hide\n#| export\nimport os\nx = 1": False,
    "#| exporti\ndef f():\n    import os": False,
    "#| eval: false\nimport os\nx = 1": False,
    "#| hide\nimport nbdev; nbdev.nbdev_export()": False}


@pytest.mark.parametrize("source", MIXED)
def test_imports_beside_other_code(source):
    "Only where nbdev runs the cell for its import alone."
    exported = new_code_cell("#| export\nimport json\ny = 1")
    found = list(house.mixed_faults(notebook(exported, new_code_cell(source)).cells))
    assert found == ["cell 2 mixes an import with other code"] * MIXED[source]
    assert not list(house.mixed_faults(notebook(new_code_cell(source)).cells)) or \
        "export" in source


def test_wide_lines(tree):
    page = tree/"nbs"/"index.ipynb"
    for columns in (house.WIDTH, house.WIDTH + 1):
        nbformat.write(notebook(new_code_cell("x\n" + columns*"a")), page)
        wide = [fault for fault in house.faults(page) if "columns" in fault]
        assert wide == ["index.ipynb cell 1 has a line of 89 columns, expected at most 88"] * (
            columns > house.WIDTH)


def test_faults_of_the_file(tmp_path):
    def joined(raw): raw["cells"][0]["source"] = "# x\n> About x."
    def widgets(raw): raw["metadata"]["widgets"] = {}
    assert "not a list of lines" in faults(tmp_path, notebook(), joined)[0]
    assert "widget state" in faults(tmp_path, notebook(), widgets)[0]
    (tmp_path/"x.ipynb").write_text("{")
    assert house.faults(tmp_path/"x.ipynb") == ["x.ipynb is not valid JSON"]


@pytest.fixture
def tree(tmp_path):
    "A small project with everything in order."
    (tmp_path/"nbs"/"data").mkdir(parents=True)
    (tmp_path/"mabe_nb").mkdir()
    for name in ("index.ipynb", "data/00_a.ipynb"):
        nbformat.write(notebook(), tmp_path/"nbs"/name)
    (tmp_path/"_quarto.yml").write_text("contents: [index.ipynb, data/00_a.ipynb]\n")
    (tmp_path/"nbs"/"_quarto.yml").symlink_to("../_quarto.yml")
    return tmp_path


def test_tree(tree):
    assert house.sidebar_faults(tree) == house.module_faults(tree) == []
    assert house.link_of_quarto(tree) == []
    shutil.copy(tree/"nbs"/"index.ipynb", tree/"nbs"/"data"/"05_b.ipynb")
    (tree/"nbs"/"data"/"00_a.ipynb").unlink()
    assert house.sidebar_faults(tree) == [
        "_quarto.yml does not list data/05_b.ipynb",
        "_quarto.yml lists data/00_a.ipynb, which is not there"]
    (tree/"mabe_nb"/"long.py").write_text("x = 1\n"*300)
    assert "300 lines" in house.module_faults(tree)[0]
    (tree/"mabe_nb"/"long.py").unlink()
    (room := tree/"mabe_nb"/"room").mkdir()
    for i in range(15):
        assert house.module_faults(tree) == []
        (room/f"m{i}.py").write_text("x = 1\n")
    assert house.module_faults(tree) == ["mabe_nb/room has 15 modules, expected at most 14"]
    (tree/"_quarto.yml").unlink()
    assert house.link_of_quarto(tree)
    (tree/"nbs"/"_quarto.yml").unlink()
    (tree/"nbs"/"_quarto.yml").write_text("a copy")
    assert house.link_of_quarto(tree)


def test_unchanged_sees_every_change(tree, monkeypatch, capsys):
    "Changed, new and removed files count; files of the environment do not."
    monkeypatch.setattr(checks, "TOP", tree)
    (tree/".venv").mkdir()

    def does(action):
        monkeypatch.setattr(checks, "tool", lambda *a: (action(), (0, ""))[1])
        return checks.unchanged("nbdev_x")[:2]
    assert does(lambda: (tree/".venv"/"x").write_text("x")) == (True, False)
    assert does(lambda: (tree/"nbs"/"index.ipynb").write_text("{}")) == (False, True)
    assert does(lambda: (tree/"mabe_nb"/"new.py").write_text("")) == (False, True)
    assert does(lambda: (tree/"mabe_nb"/"new.py").unlink()) == (False, True)
    assert "mabe_nb/new.py" in capsys.readouterr().out


def test_readme(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "TOP", tmp_path)
    (tmp_path/"nbs").mkdir()
    table = new_output("execute_result", {"text/plain": "   a\n0  1",
                                          "text/html": "<table>"})
    nbformat.write(notebook(
        new_markdown_cell("![](images/a.png) [b](data/00_b.ipynb#c) [L](../LICENSE) "
                          "[w](https://a.b/c) [i](#i) `Recording`"),
        new_code_cell("#| hide\nimport os"),
        new_code_cell("#| eval: false\nrun()", outputs=[stream("done\n")]),
        new_code_cell("#| echo: false\nsecret()", outputs=[table])), tmp_path/"nbs"/"i.ipynb")
    text = readme.readme(tmp_path/"nbs"/"i.ipynb")
    assert text == (
        "# x\n> About x.\n\n![](nbs/images/a.png) [b](nbs/data/00_b.ipynb#c) [L](LICENSE) "
        "[w](https://a.b/c) [i](#i) `Recording`\n\n```python\nrun()\n```\n\n"
        "```\ndone\n```\n\n```\n   a\n0  1\n```\n\n" + readme.NOTE + "\n")


def test_readme_refuses_a_drawn_picture(tmp_path):
    picture = new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})
    nbformat.write(shows(picture), tmp_path/"i.ipynb")
    with pytest.raises(SystemExit, match="cell 1, draws a picture"):
        readme.readme(tmp_path/"i.ipynb")


def test_rooms_contract_can_fail(tmp_path):
    "A `train` module that imports `view` breaks the rooms; the house as it is does not."
    for path in (TOP/"mabe_nb").rglob("*.py"): # the rooms, empty
        (tmp_path/path.relative_to(TOP)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/path.relative_to(TOP)).write_text("")
    shutil.copy(TOP/".importlinter", tmp_path)
    lint = [Path(sys.executable).parent/"lint-imports", "--no-logo", "--no-cache"]
    def run():
        return subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True)
    assert run().returncode == 0, run().stdout
    (tmp_path/"mabe_nb"/"train"/"x.py").write_text("import mabe_nb.view\n")
    assert run().returncode == 1 and "mabe_nb.train.x -> mabe_nb.view" in run().stdout
    (tmp_path/"mabe_nb"/"train"/"x.py").write_text("import mabe_nb.hardware\n")
    assert run().returncode == 1 and "cards and prices" in run().stdout
