"""The notebook's way to a card, in real Jupyter kernels; one list of scenarios for all places.

`modal` joins through the stand-in of `tests/localcloud`: real client, no account.
"""
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from waiting import until

from mabe_nb.errors import ConfigError
from mabe_nb.remote.job import attach, jobs
from mabe_nb.remote.notebook.decorator import gpu, inputs_of

SETUP = "%load_ext mabe_nb.remote.notebook.magic\nimport numpy as np\nx = np.arange(6.0)\ncfg = {'n': 3}"


class Book(NotebookClient):
    "A notebook with a kernel, executed cell by cell as a person would."
    def __init__(self):
        super().__init__(new_notebook(), timeout=60, kernel_name="python3", allow_errors=True,
                         kernel_manager_class=KernelManager, kernel_manager=None)
        self.create_kernel_manager()
        self.start_new_kernel()
        self.start_new_kernel_client()
        self.sizes = [] # (seconds, bytes as they would be stored) after each message
        assert not self.run(SETUP).outputs

    def run(self, source):
        self.nb.cells.append(new_code_cell(source))
        return self.execute_cell(self.nb.cells[-1], len(self.nb.cells) - 1)

    def process_message(self, msg, cell, cell_index):
        found = super().process_message(msg, cell, cell_index)
        if msg["msg_type"] in ("display_data", "update_display_data", "stream"):
            self.sizes.append((time.monotonic(), size(cell)))
        return found

    def says(self, source):
        "What a cell prints."
        cell = self.run(source)
        assert not errors(cell), errors(cell)
        return text(cell)

    def interrupt_when(self, ready):
        "Press the stop button once `ready()` is true."
        def press():
            until(ready)
            self.km.interrupt_kernel()
        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        return thread

    def kill(self):
        self.km.signal_kernel(signal.SIGKILL)
        self.kc.stop_channels()
        self.km.cleanup_resources()

    def close(self):
        if self.km.is_alive(): self.km.shutdown_kernel(now=True)
        self.kc.stop_channels()


def size(cell): return len(json.dumps(cell.outputs).encode())
def shown(cell, kind): return [o.data[kind] for o in cell.outputs if kind in o.get("data", {})]
def errors(cell): return [o for o in cell.outputs if o.output_type == "error"]


def text(cell):
    "All that a cell shows, as plain text."
    return "\n".join([o.text for o in cell.outputs if o.output_type == "stream"]
                     + shown(cell, "text/plain"))


class Place:
    "Where the jobs of a scenario run."
    def __init__(self, name, book, cloud=None):
        self.name, self.book, self.cloud = name, book, cloud
        self.to = f"%%gpu --on {name}" + (" --gpu T4" if cloud else "")

    def send(self, source, line=""): return self.book.run(f"{self.to} {line}\n{source}")

    def crash(self, job):
        "Its process, or its container, dies at once, as when memory runs out."
        if self.cloud: return self.cloud.call(self.cloud.faults.crash)
        os.kill(job.spec["handle"]["pid"], signal.SIGKILL)

    def scarce(self, *cards):
        "Cards that cannot be had; this machine never has them."
        if self.cloud: self.cloud.faults.no_capacity |= set(cards)

    def drop(self, seconds):
        "No connection for a while; this machine needs none."
        if self.cloud: self.cloud.call(lambda: self.cloud.faults.drop(seconds))

    def waits(self, known):
        "The newest job, once it is one more than were known and has printed 'waiting'."
        found = jobs()
        if len(found) == known or not found[0].spec["handle"]: return None
        return found[0] if "waiting" in found[0].log() else None


def cloud_beside(tmp_path, patch):
    "A stand-in for Modal, if there is a backend for it."
    pytest.importorskip("modal")
    pytest.importorskip("mabe_nb.remote.places.modal", reason="the modal backend is missing")
    from localcloud import start_thread
    from localcloud.pytest_fixture import forget_client
    cloud = start_thread(tmp_path)
    for name, value in cloud.env.items(): patch.setenv(name, value)
    forget_client()
    return cloud


@pytest.fixture(scope="module", params=["local", pytest.param("modal", marks=[
    pytest.mark.cloud])])
def place(request, tmp_path_factory):
    "One kernel for the scenarios that do not disturb each other."
    root = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for name, folder in (("MABE_HOME", "home"), ("IPYTHONDIR", "ipython"),
                             ("JUPYTER_RUNTIME_DIR", "runtime")):
            patch.setenv(name, str(root/folder))
        cloud = cloud_beside(root/"cloud", patch) if request.param == "modal" else None
        book = Book()
        yield Place(request.param, book, cloud)
        book.close()
        for job in jobs(): job.cancel()
        if cloud: cloud.stop()


@pytest.mark.slow
def test_outputs_and_figure_come_back(place):
    cell = place.send("import numpy as np, matplotlib.pyplot as plt\n"
                      "w, losses = x * 2, [1 / (n + 1) for n in range(cfg['n'])]\n"
                      "for n in range(3): print('epoch', n); progress(n + 1, 3, loss=losses[n])\n"
                      "plt.plot(losses); plt.show()\nw.sum()", "--in x, cfg --out w,losses")
    assert not errors(cell)
    html, figure = shown(cell, "text/html")
    assert 'alt="figure fig/001.png of the job"' in figure and ";base64,iVBOR" in figure
    assert 'role="status"><strong>done' in html and 'aria-valuenow="100"' in html
    assert "3/3 loss=0.3333" in html and "epoch 2\n" in html and "30.0" in html
    assert place.book.says("print(type(w).__name__, w.sum(), len(losses), job.status())"
                           ) == "ndarray 30.0 3 done\n"


@pytest.mark.slow
def test_an_exception_stops_with_its_traceback(place):
    cell = place.send("kept = 1\ndef halve(y): return y / 0\nhalve(kept)", "--out kept")
    error, = errors(cell)
    assert error.ename == "JobError" and len(error.traceback) == 1
    assert "ZeroDivisionError: division by zero" in error.traceback[0]
    assert "line 2, in halve" in text(cell) and "error" in shown(cell, "text/html")[0]
    assert "mabe_nb/remote/magic" not in str(cell.outputs)
    assert "by zero; what came back: kept;" in error.evalue
    assert place.book.says("print(kept, 'halve' in dir())") == "1 False\n"


@pytest.mark.slow
def test_timeout_refused_output_and_cap(place):
    for source, line, why in (
            ("import time; time.sleep(60)", "--timeout 1", "stopped after its limit of 1 s"),
            ("f = lambda: 1", "--out f", "'f' is or holds something of type function"),
            ("if not cfg: f = 1", "--in cfg --out f", "the job never set its output 'f'"),
            ("import numpy as np; f = np.zeros(10**6)", "--out f --limit 1000000",
             "'f' makes 8,000,000")):
        error, = errors(cell := place.send(source, line))
        assert why in error.evalue and why in text(cell)


def test_slips_cost_nothing(place):
    before = len(jobs())
    for line, source, why in (
            ("--gpus T4", "1", "unknown option of %%gpu '--gpus'"), ("", "!ls", "line 1 of"),
            ("", "x.sum()", "'x' (ndarray) of the notebook, which does not travel by itself; "
             "add --in x"), ("", "y = xx", "'xx', which neither it nor the notebook defines"),
            ("--out z", "y = 1", "the cell never sets 'z'"), ("", "input('?')", "input()"),
            ("", "%pip install einops", "option pip=einops"),
            ("--in nope", "1", "--in nope: no such variable"), ("--out 2x", "1", "'2x' is no"),
            ("--with nope", "1", "unknown helper 'nope'"), ("--on moda", "1", "did you mean")):
        error, = errors(place.book.run(f"{place.to} {line}\n{source}"))
        assert why in error.traceback[0] and len(error.traceback) == 1
    for line in ("%gpu_attach", "%gpu_attach nothing", "%gpu_attach ../x"):
        error, = errors(place.book.run(line))
        assert len(error.traceback) == 1
    assert len(jobs()) == before


@pytest.mark.slow
def test_helpers_and_decorator(place):
    place.book.says("def twice(y): return 2 * y")
    assert not errors(place.send("z = twice(21)", "--with twice --out z"))
    card = "gpu='T4', " if place.cloud else ""
    assert place.book.says(
        "from mabe_nb.remote.notebook.decorator import gpu\n"
        f"@gpu(on={place.name!r}, {card}out=['a'])\ndef f(n, by=2): return {{'a': n * by}}\n"
        "print('got', z, f(4)['a'], f.submit(1, by=5).result())"
        ).split("got")[1].startswith(" 42 8 {'a': 5}")


@pytest.mark.slow
def test_a_call_travels_with_the_names_of_its_values():
    def scaled(x, *more, **settings): return [x, settings]
    assert inputs_of(scaled, (2,), {"scale": 10}) == {"x": 2, "scale": 10}
    assert inputs_of(scaled, (2,), {}) == {"x": 2}
    with pytest.raises(ConfigError, match="[*]more.*one list"): inputs_of(scaled, (2, 3), {})
    with pytest.raises(ConfigError, match="scaled"): inputs_of(scaled, (), {})
    job = gpu(on="local")(scaled).submit(2, scale=10)
    assert job.result()["value"] == [2, {"scale": 10}]


def readme_cell():
    "The cell that the first page shows, as it stands."
    text = (Path(__file__).parents[1]/"README.md").read_text(encoding="utf-8")
    cell, = re.findall(r"^%%gpu .*\n(?:.+\n)+(?=```)", text, re.M)
    return cell


def test_the_cell_of_the_readme_runs_as_written(place):
    "Only the place is another one where no cloud stands by."
    cell = readme_cell()
    assert "--on modal --gpu L4" in cell and "losses = fit(X, cfg)" in cell
    if not place.cloud: cell = cell.replace("--on modal --gpu L4", "--on local")
    place.book.says("X = np.ones((4, 2))\ncfg = {'epochs': 3}\nSTEP = 0.5\n"
                    "def step(X, n): return float(X.mean()) * STEP / (n + 1)\n"
                    "def fit(X, cfg): return [step(X, n) for n in range(cfg['epochs'])]")
    sent = place.book.run(cell)
    assert not errors(sent), errors(sent)
    said = text(sent)
    for words in ("X (npy, 192 bytes)", "cfg (json,", "fit, step", "STEP (constant)"):
        assert words in said or words == "fit, step" and "step, fit" in said, said
    assert place.book.says("print(losses)") == "[0.5, 0.25, 0.16666666666666666]\n"


def tutorial_cells():
    "The code of the tutorial on sending cells, the only one that sends any."
    books = sorted((Path(__file__).parents[1]/"nbs"/"tutorials").glob("*.ipynb"))
    found = {path.name: [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
             for path in books}
    sent = {name: n for name, cells in found.items() if (n := sum("%%gpu" in c for c in cells))}
    assert sent == {"05_send_a_cell.ipynb": 2}
    return found["05_send_a_cell.ipynb"]


@pytest.mark.slow
def test_the_cells_of_the_tutorial_run_as_they_stand(place):
    "With what stands before them; only the place is added where a cloud stands by."
    before, there = [], " --on modal" if place.cloud else ""
    for cell in tutorial_cells():
        head, _, rest = cell.partition("\n")
        if "load_ext" in cell: assert [place.book.says(cell) for _ in range(2)] == ["", ""]
        if cell.startswith("import numpy as np\n\nrng"): place.book.says(cell)
        if not cell.startswith("%%gpu"): continue
        sent = place.book.run(f"{head}{there}\n{rest}")
        assert not errors(sent), errors(sent)
        if "--detach" in head: assert not errors(place.book.run("%gpu_attach {job.id}"))
        before.append(head)
    assert place.book.says("print(sorted(speeds), speeds['30 frames'].shape, steps, job.on)") == \
        f"['15 frames', '30 frames', '60 frames'] (870,) [0, 1, 2, 3, 4] {place.name}\n"
    assert len(before) == 2


STRANGER = """
import os, tempfile
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
import numpy as xp
os.chdir(tempfile.mkdtemp())
Path('lab_units.py').write_text('import json\\nFPS = 30\\ndef cm(px): return px / 10')
import lab_units
from lab_units import cm

@dataclass
class Track:
    xy: list
    def length(self): return float(xp.hypot(*xp.diff(self.xy, axis=0).T).sum())

class Mouse(Track):
    def speed(self): return cm(self.length()) * lab_units.FPS

def logged(f):
    @wraps(f)
    def inner(*args):
        print('called', f.__name__)
        return f(*args)
    return inner

def of_scale(k):
    def scaled(value): return k * value
    return scaled

twice = of_scale(2)

@logged
def result(xy): return twice(Mouse(xy).speed())
"""


@pytest.mark.slow
def test_a_strangers_notebook_goes_and_comes_back(place):
    "A dataclass, its heir, a decorator, a closure, a module beside it: the first time."
    place.book.says(STRANGER)
    place.book.says("xy = [[0, 0], [3, 4]]")
    cell = place.send("v = result(xy)", "--in xy --out v")
    assert not errors(cell), errors(cell)
    assert "lab_units.py (module" in text(cell) and "called result" in text(cell)
    assert place.book.says("print(v)").split() == ["30.0"]
    place.book.says("import pandas as pd\ntable = pd.DataFrame({'mouse': ['a', 'b'], 'cm': [3., 4.]})")
    unlike = "" if not place.cloud else " --option pip=nbformat" # which the image lacks
    cell = place.send("import nbformat\nfar = table.assign(cm=twice(table.cm)); n = nbformat.current_nbformat",
                      "--in table --out far,n" + unlike)
    assert not errors(cell), errors(cell)
    assert "table (parquet" in text(cell) and "of_scale" not in text(cell)
    assert place.book.says("print(far.cm.tolist(), far.mouse.tolist(), n > 0)") == \
        "[6.0, 8.0] ['a', 'b'] True\n"
    place.book.says("half = lambda x: x / 2")
    before = len(jobs())
    if place.cloud:
        error, = errors(place.send("import nbformat"))
        assert "'nbformat'" in error.evalue and "lacks; add it with" in error.evalue
    error, = errors(place.send("half(3)"))
    assert "'half', which cannot go along: a lambda" in error.evalue and len(jobs()) == before


ODD = """
import helpers.units as units
from flat import *
import re, torch
from functools import partial, singledispatch
factors, handle, squares = {'half': lambda x: x / 2}, open('mice.csv'), (i * i for i in range(3))
pattern, add, net = re.compile('a'), partial(max, 3), torch.nn.Linear(2, 1)
def use(x): return factors['half'](x)
@singledispatch
def kind(x): return 'any'
@kind.register
def _(x: int): return 'int'
class Named(type):
    def __new__(meta, name, bases, own): return super().__new__(meta, name, bases, own | {'tag': name})
class Mouse(metaclass=Named): pass
class Heir(Mouse): pass
def label(i): return f'{NAME}-{i:03d}'
async def later(x): return x + 1
NAME = 'mouse'
"""


def test_what_of_an_odd_notebook_cannot_go_is_named_before_it_is_paid(place):
    place.book.says("import os, tempfile\nfrom pathlib import Path\nos.chdir(tempfile.mkdtemp())\n"
                    "for name, text in (('helpers/__init__.py', ''), ('helpers/units.py', 'K = 10'),\n"
                    "        ('flat.py', 'def twice(x): return 2 * x'), ('mice.csv', 'cm\\n3')):\n"
                    "    Path(name).parent.mkdir(exist_ok=True); Path(name).write_text(text)")
    place.book.says(ODD)
    before = len(jobs())
    for source, words in (
            ("factors['half'](2)", "'factors', which is or holds something of type function"),
            ("use(2)", "'use' uses 'factors', which is or holds something of type function"),
            ("handle.read()", "type TextIOWrapper and cannot travel; make it where the code runs"),
            ("sum(squares)", "type generator"), ("pattern.findall('a')", "type Pattern"),
            ("add(4)", "type partial"), ("net(1)", "cannot travel; send its state_dict()"),
            ("kind(3)", "'kind', a singledispatch function: what was registered"),
            ("await later(1)", "a bare 'await'; call asyncio.run"), ("NAME[0]", "add --in NAME")):
        error, = errors(place.send(source))
        assert words in error.evalue, (source, error.evalue)
    assert len(jobs()) == before
    cell = place.send("import asyncio, os\nv = [twice(units.K), Heir.tag, label(7), "
                      "asyncio.run(later(1))]\nhere = os.path.exists('mice.csv')", "--out v,here")
    assert not errors(cell), errors(cell)
    assert place.book.says("print(v)") == "[20, 'Heir', 'mouse-007', 2]\n"
    assert place.book.says("print(here)") == f"{not place.cloud}\n"
    assert ("'mice.csv' is a file of this machine that does not go along" in text(cell)) == \
        bool(place.cloud)


def test_one_output_that_cannot_travel(place):
    cell = place.send("a, m = [1, 2], lambda: 1", "--out a,m")
    error, = errors(cell)
    assert "'m' is or holds something of type function" in error.evalue
    assert "what came back: a" in error.evalue
    assert place.book.says("print(a, 'm' in dir())") == "[1, 2] False\n"


@pytest.mark.slow
def test_a_missing_package(place):
    error, = errors(place.send("import no_such_module"))
    if not place.cloud: assert "'pip install no_such_module'" in error.evalue
    else:
        assert "lacks; add it with the option pip=" in error.evalue
        error, = errors(place.send("import no_such_module", "--option pip=einops"))
        assert "No module named 'no_such_module' on 'modal'; add it with" in error.evalue


WAIT = "import time; print('waiting', flush=True); time.sleep(30)"


def test_interrupt_cancels(place):
    known = len(jobs())
    press = place.book.interrupt_when(lambda: place.waits(known))
    cell = place.send(WAIT)
    press.join()
    error, = errors(cell)
    assert error.ename == "JobError" and "it was cancelled" in error.evalue
    assert "interrupted: cancelling job" in text(cell) and "cancelled" in text(cell)
    assert jobs()[0].status() == "cancelled"
    assert place.book.says("print(job.status(), 1 + 1)") == "cancelled 2\n"


@pytest.mark.slow
def test_cancelled_from_another_process(place):
    known = len(jobs())
    thread = threading.Thread(target=lambda: until(lambda: place.waits(known)).cancel())
    thread.start()
    error, = errors(place.send(WAIT))
    thread.join()
    assert "it was cancelled" in error.evalue


@pytest.mark.slow
def test_a_crash_is_told(place):
    known = len(jobs())
    thread = threading.Thread(target=lambda: place.crash(until(lambda: place.waits(known))))
    thread.start()
    error, = errors(cell := place.send(WAIT + "\ny = 1", "--out y"))
    thread.join()
    assert ("crashed" if place.cloud else "was killed") in error.evalue
    html, = shown(cell, "text/html")
    assert "<strong>died" in html and "waiting" in html
    assert jobs()[0].status() == "died"
    assert place.book.says("print('y' in dir(), 1 + 1)") == "False 2\n"


def test_no_capacity_then_fallback(place):
    place.scarce("H100", "L4")
    cell = place.send("import os\ncard = os.environ.get('LC_GPU', 'none')",
                      "--gpu H100,L4,A10G --out card") # the last --gpu counts
    if place.cloud:
        place.cloud.faults.no_capacity.clear()
        assert not errors(cell) and place.book.says("print(card)") == "A10\n"
    else: assert "but 'local' is this machine" in errors(cell)[0].evalue


@pytest.mark.slow
def test_followed_through_a_dropped_connection(place):
    "Ten seconds without a network: the cell goes on looking, and shows every line."
    known = len(jobs())
    def cut():
        until(lambda: place.waits(known))
        place.drop(10)
    thread = threading.Thread(target=cut)
    thread.start()
    cell = place.send("import time; print('waiting', flush=True)\nfor n in range(40):\n"
                      "    print('line', n, flush=True); time.sleep(0.15)", "--out n")
    thread.join()
    assert not errors(cell) and "line 39<" in shown(cell, "text/html")[0]
    assert [int(w) for w in jobs()[0].log().split()[2::2]] == list(range(40))
    assert place.book.says("print(n, job.status())") == "39 done\n"


@pytest.mark.slow
def test_two_at_once(place):
    "The second begins before the first ends, and each result finds its way."
    for who in "ab":
        place.book.says(f"who = {who!r}")
        place.send("import time\nprint('at', time.time(), flush=True)\ntime.sleep(2)\n"
                   "got, end = who * 2, time.time()", "--in who --out got,end --detach")
    two, one = jobs()[:2]
    for job, got in ((one, "aa"), (two, "bb")):
        cell = place.book.run(f"%gpu_attach {job.id}")
        assert not errors(cell) and place.book.says("print(got)") == f"{got}\n"
    begun = float(two.log().split()[1])
    assert begun < one.result()["end"]
    listed = place.book.says("%gpu_jobs")
    assert listed.index(two.id) < listed.index(one.id)


@pytest.mark.slow
def test_a_hundred_thousand_lines(place):
    cell = place.send("for n in range(100_000): print('line', n)")
    html, = shown(cell, "text/html")
    assert "line 99999" in html and "99,900 lines above, job.log() has all 100,000" in html
    assert html.count("\n") < 110 and size(cell) < 8000
    assert jobs()[0].log().count("\n") == 100_000


@pytest.mark.slow
def test_nothing_of_a_job_is_rendered(place):
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    cell = place.send(f"evil = {evil!r}\nprint(evil)\n"
                      "print('\\x1b[31mred\\x1b]8;;http://x\\x07 \\x1e{\"k\": \"figure\"}')\n"
                      "progress(1, 2, **{evil: 1.0})\n"
                      "class Loud:\n    def _repr_html_(self): return evil\n"
                      "    def __repr__(self): return evil\n"
                      "if cfg['n']: raise ValueError(evil)\nLoud()", "--in cfg")
    html, = shown(cell, "text/html")
    assert "<script" not in html and "<img" not in html and "&lt;script&gt;" in html
    assert "\x1b" not in json.dumps(cell.outputs, ensure_ascii=False) and "red" in html
    assert {k for o in cell.outputs for k in o.get("data", {})} == {"text/html", "text/plain"}
    cell = place.send(f"class Loud:\n    def __repr__(self): return {evil!r}\nLoud()")
    assert "<script" not in shown(cell, "text/html")[0] and not errors(cell)


def test_false_figures_are_not_shown(place):
    cell = place.send("import json, os, pathlib, struct\nfrom mabe_nb.remote.inside.cell import emit\n"
                      "fig = pathlib.Path(os.environ['MABE_JOB'], 'fig')\n"
                      "head = b'\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR'\n"
                      "wide = head + struct.pack('>II', 10**6, 10**6) + bytes(20)\n"
                      "for n, data in enumerate([b'<svg onload=alert(1)>', wide]):\n"
                      "    (fig/f'00{n}.png').write_bytes(data)\n"
                      "    emit('figure', path=f'fig/00{n}.png')\n"
                      "emit('figure', path='../../etc/passwd')")
    assert "<img" not in "".join(shown(cell, "text/html")) and not errors(cell)
    assert "is no PNG" in text(cell) and "is too large to be shown" in text(cell)


def test_a_silent_job_stays_small(place):
    "Twelve seconds: one update a second, and not a byte more near the end than in the middle."
    before = len(place.book.sizes)
    cell = place.send("import time; time.sleep(12)")
    seen = place.book.sizes[before:]
    begun, end = seen[0][0], seen[-1][0]
    late = [s for when, s in seen if 1 < end - when < 8] # It may have waited for its start
    assert len(late) >= 3 and max(late) <= min(late) + 20 # a clock with more digits
    assert len(seen) <= seen[-1][0] - begun + 6 and size(cell) < 1000


@pytest.mark.slow
def test_left_killed_and_found_again(place):
    "A kernel dies, a job goes on, and a new kernel sees every line of it."
    first = Book()
    first.run(f"{place.to} --in cfg --out losses --detach\n"
              "import json, os, time\nkept = CKPT/'kept.json'\n"
              "losses = json.loads(kept.read_text()) if kept.exists() else []\n"
              "while len(losses) < 20:\n"
              "    time.sleep(0.15); losses.append(len(losses))\n"
              "    print('step', len(losses), flush=True)\n"
              "    (CKPT/'tmp').write_text(json.dumps(losses)); os.replace(CKPT/'tmp', kept)\n"
              "    commit()")
    id = first.says("print(job.id)").strip()
    first.kill()
    until(lambda: "step 5\n" in attach(id).log())
    if place.cloud: place.cloud.call(place.cloud.faults.preempt)
    assert attach(id).status() == "running"
    second = Book()
    cell = second.run(f"%gpu_attach {id}")
    assert not errors(cell)
    lines = text(cell).split("\n")
    seen = [int(line.split()[1]) for line in lines if line.startswith("step ")]
    assert sorted(set(seen)) == list(range(1, 21))
    assert place.cloud or len(seen) == 20 # a preempted job may say its last line again
    assert second.says("print(losses == list(range(20)), job.id)") == f"True {id}\n"
    second.close()


def test_the_stored_notebook_is_valid_and_small(place):
    "After all of the above: no widget, no state, no megabytes."
    nbformat.validate(place.book.nb)
    stored = nbformat.writes(place.book.nb)
    assert "widget" not in stored and len(stored) < 250_000 # some of it two pictures
