"""Packaging reads everything from settings.ini; edit there, not here."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

ini = ConfigParser(delimiters=["="])
ini.read("settings.ini", encoding="utf-8")
cfg = ini["DEFAULT"]
readme = Path("README.md")
setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    license="Apache-2.0",
    keywords=cfg["keywords"],
    packages=find_packages(include=[cfg["lib_path"], cfg["lib_path"] + ".*"]),
    package_data={"mabe_nb": ["py.typed", "*.pyi"], "mabe_nb.hardware": ["*.csv"],
                  "mabe_nb.view.panels": ["*.js", "*.css"],
                  "mabe_nb.view.video": ["*.js", "*.css"]},
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require={"dev": cfg["dev_requirements"].split(),
                    "completion": cfg["completion_requirements"].split(),
                    "onnx": cfg["onnx_requirements"].split(),
                    "excel": cfg["excel_requirements"].split()},
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
