"The recipe `quick` with fewer epochs and trees, for files of tests that judge no score."
from dataclasses import replace

import pytest

from mabe_nb.train.ensemble.member_specs import RECIPES

FEWER = {"net": {"epochs": 3}, "boost": {"rounds": 3}}


@pytest.fixture(scope="module", autouse=True)
def short():
    "In this process; one that is begun anew knows the recipe as it is."
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "quick", tuple(
            replace(spec, settings=spec.settings | FEWER[spec.kind])
            for spec in RECIPES["quick"]))
        yield
