"The recipe `quick` learns for a moment, in files that do not ask how well."
from dataclasses import replace

import pytest

from mabe_nb.train.ensemble.presets import RECIPES

SHORT = {"net": {"epochs": 2}, "boost": {"rounds": 3}}


@pytest.fixture(scope="module", autouse=True)
def quick_recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "quick", tuple(
            replace(m, settings=m.settings | SHORT[m.kind]) for m in RECIPES["quick"]))
        yield
