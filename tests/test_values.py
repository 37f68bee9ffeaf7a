"Values travel unchanged or are refused by name, and hostile folders are refused."
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from mabe_nb.errors import DataError
from mabe_nb.remote.values import (JSON_LIMIT, KINDS, check_sizes, read_index,
                                   read_values, write_values)

NAMES = st.from_regex(r"v[A-Za-z0-9_]{0,20}", fullmatch=True)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(
    st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), v, max_size=3), max_leaves=8)
DTYPES = st.sampled_from(["f4", "f8", "i8", "u1", "?", "c8", "U3", "S4", ">f4", "M8[s]"])
ARRAYS = DTYPES.flatmap(lambda d: hnp.arrays(np.dtype(d), hnp.array_shapes(
    min_dims=1, min_side=0, max_dims=3, max_side=4)))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, PLAIN | ARRAYS, max_size=4))
def test_round_trip(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("v")/"in"
    write_values(folder, values)
    back = read_values(folder)
    assert back.keys() == values.keys()
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            assert back[name].dtype == value.dtype
            np.testing.assert_array_equal(back[name], value)
        else: assert back[name] == value


def test_state_dict_comes_back_as_tensors(tmp_path):
    state = torch.nn.Linear(3, 2).to(torch.bfloat16).state_dict()
    state["tied"] = state["weight"]
    write_values(tmp_path/"out", {"state": state, "t": torch.ones(2, requires_grad=True)})
    back = read_values(tmp_path/"out")
    assert all(torch.equal(back["state"][k], v) for k, v in state.items())
    assert np.array_equal(back["t"], np.ones(2))


@pytest.mark.parametrize("of", [np.ones, torch.ones], ids=["arrays", "tensors"])
def test_keys_keep_their_order(tmp_path, of):
    "Safetensors sorts by size of a number, then by name."
    value = {"valid": of(2), "train": of(3), "a": of(1) > 0}
    write_values(tmp_path/"out", {"flat": value, "deep": [value]})
    back = read_values(tmp_path/"out")
    assert [*back["flat"]] == [*back["deep"][0]] == [*value]


NUMBERS = st.sampled_from(["f4", "f8", "i8", "u1", "?", "c8"]).flatmap(
    lambda d: hnp.arrays(np.dtype(d), hnp.array_shapes(min_dims=1, min_side=0, max_side=3)))
NESTED = st.recursive(LEAVES | NUMBERS, lambda v: st.lists(v, max_size=3) | st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), v, max_size=3), max_leaves=8)


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, list): return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@settings(max_examples=60, deadline=None)
@given(st.lists(NESTED, max_size=3))
def test_arrays_within_lists_and_dicts(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("v")/"in"
    write_values(folder, {"value": value})
    assert same(read_values(folder)["value"], value)


TABLES = {"mixed": pd.DataFrame({
    "action": pd.Categorical(["sniff", "rear", "sniff"], ["rear", "sniff"], ordered=True),
    "who": ["mouse1", None, "é"], "start": [1, 2, 3], "sure": [0.5, np.nan, np.inf],
    "day": pd.to_datetime(["2026-01-02", None, "2026-01-04"])}, index=["a", "b", "c"]),
    "empty": pd.DataFrame({"x": np.zeros(0)}), "no columns": pd.DataFrame(index=[0, 1]),
    "levels": pd.DataFrame({"x": [1, 2]}, index=pd.MultiIndex.from_tuples(
        [("v", 1), ("w", 2)], names=["video", "frame"]))}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_come_back_as_they_were(tmp_path, kind):
    write_values(tmp_path/"out", {"table": TABLES[kind]})
    pd.testing.assert_frame_equal(read_values(tmp_path/"out")["table"], TABLES[kind])


SERIES = {"means": TABLES["mixed"].groupby("action", observed=True).sure.mean(),
          "without a name": pd.Series([1, 2], index=[7, 9]), "numbered": pd.Series(["a", None], name=3),
          "times": TABLES["mixed"].day, "kinds": TABLES["mixed"].action, "empty": pd.Series([], dtype=float)}


@pytest.mark.parametrize("kind", SERIES)
def test_series_come_back_as_they_were(tmp_path, kind):
    write_values(tmp_path/"out", {"series": SERIES[kind]})
    pd.testing.assert_series_equal(read_values(tmp_path/"out")["series"], SERIES[kind])


def test_a_series_that_would_change_is_refused(tmp_path):
    for odd in (pd.Series([1], name=("a", "b")), pd.Series([1, "a"]), pd.Series([1], name=np.int64(1)),
                pd.DataFrame({'{"series": "x"}': [1]})):
        with pytest.raises(DataError, match="'odd'"): write_values(tmp_path/"out", {"odd": odd})


KEYS = {"numbers": {1: "a", 2.5: [1], -3: {}}, "pairs of animals": {("mouse1", "mouse2"): 0.5, ("mouse2", "mouse1"): 1},
        "all kinds": {"a": 1, None: 2, False: 3, (1, ("b", 2.0)): np.arange(3)}, "within": [{"a": {0: np.ones(2)}}],
        "arrays by number": {0: np.arange(2), 1: np.zeros((1, 2))}}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_come_back_as_they_were(tmp_path, kind):
    write_values(tmp_path/"out", {"value": KEYS[kind]})
    assert same(back := read_values(tmp_path/"out")["value"], KEYS[kind])
    assert not isinstance(back, dict) or [*map(type, back)] == [*map(type, KEYS[kind])]


@pytest.mark.parametrize("pairs", [[[1]], [[{}, {"plain": 1}]], 3, [[[[]], {"plain": 1}, 2]], [[1, {"pairs": 2}]]])
def test_keys_that_claim_to_be_others_are_refused(tmp_path, pairs):
    write_values(tmp_path/"out", {"value": {1: 2}})
    whole = (file := tmp_path/"out"/"value.safetensors").read_bytes()
    assert (sent := rb'{\"pairs\": [[1, {\"plain\": 2}]]}') in whole
    bad = json.dumps(json.dumps({"pairs": pairs}))[1:-1].encode()
    head = whole[8:].replace(sent, bad)
    file.write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(DataError, match="refused as safetensors"): read_values(tmp_path/"out")


def test_numbers_of_numpy_are_plain_ones_as_keys(tmp_path):
    write_values(tmp_path/"out", {"value": {np.int64(3): 1, (np.str_("a"), np.float32(.5)): 2}})
    assert read_values(tmp_path/"out")["value"] == {3: 1, ("a", 0.5): 2}


def test_intervals_and_periods_come_back_where_pandas_has_written_none(tmp_path):
    frame = pd.DataFrame({"bin": pd.interval_range(0, 2)},
                         index=pd.period_range("2026-01", "2026-02", freq="M"))
    write_values(tmp_path/"out", {"table": frame})
    code = ("import sys; from mabe_nb.remote.values import read_values\n"
            "t = read_values(sys.argv[1])['table']; print(t.dtypes.bin, t.index.dtype)")
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path/"out")],
                         capture_output=True, text=True, check=True)
    assert out.stdout == "interval[int64, right] period[M]\n"


def test_fortran_order_and_numpy_numbers(tmp_path):
    values = {"a": np.asfortranarray(np.arange(6).reshape(2, 3)), "n": np.int8(3),
              "z": np.array(2.5), "nested": [np.float32(0.5), torch.tensor(2)]}
    write_values(tmp_path/"x", values)
    back = read_values(tmp_path/"x")
    assert np.array_equal(back["a"], values["a"])
    assert (back["n"], back["z"], back["nested"]) == (3, 2.5, [0.5, 2])


REFUSED = {"a function": len, "an object array": np.array([{}]), "a set": {1},
           "keys of bytes": {b"a": 2}, "a key in a key": {(1, b"a"): 2}, "keys of a set": {frozenset(): 2}, "words in a list": [np.array(["a"])], "bytes": b"x",
           "a table of anything": pd.DataFrame({"x": [object()]}),
           "a table in a list": [pd.DataFrame({"x": [1]})],
           "fields": np.zeros(2, [("a", int)]), "a module": json,
           "complex128": {"a": torch.ones(2, dtype=torch.complex128)}, "no data": {"a": torch.ones(2, device="meta")},
           "longdouble": {"x": np.zeros(2, np.longdouble)}, "a reserved key": {"__metadata__": np.zeros(2)},
           "a key of half a letter": {"\ud800": np.zeros(2)}, "sparse": {"a": torch.eye(2).to_sparse()},
           "a lone surrogate": "\ud800", "bfloat16": torch.ones(2, dtype=torch.bfloat16)}


@pytest.mark.parametrize("why", REFUSED)
def test_refused_by_name(tmp_path, why):
    with pytest.raises(DataError, match="'culprit'"):
        write_values(tmp_path/"in", {"good": 1, "culprit": REFUSED[why]})
    assert not list(tmp_path.iterdir())


def deep():
    value = []
    for _ in range(10**5): value = [value]
    return value


def test_deep_and_large_are_refused(tmp_path):
    with pytest.raises(DataError, match="'d'"): write_values(tmp_path/"in", {"d": deep()})
    with pytest.raises(DataError, match="'b' makes 9"):
        write_values(tmp_path/"in", {"b": np.zeros(1125)}, limit=8000)
    with pytest.raises(DataError, match="'s'"):
        write_values(tmp_path/"in", {"s": "x"*(JSON_LIMIT + 1)})
    with pytest.raises(DataError, match="allowed as JSON; make it an array, or"):
        write_values(tmp_path/"in", {"s": "x"*(JSON_LIMIT + 1)}) # a higher limit is no help
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "a/b", "class", "", "a b", "x"*65, "é", 3])
def test_bad_names(tmp_path, name):
    with pytest.raises(DataError, match="no name"): write_values(tmp_path/"in", {name: 1})


INDEXES = [b"", b"[]", b"3", b"{", b"\xff", b"["*10**6, b'{"../x": "npy"}', b'{"a": "pickle"}',
           b'{"a": ["npy"]}', b'{"a": null}', b'{"a\\u0000": "npy"}', b'{"import": "json"}',
           json.dumps({f"a{i}": "json" for i in range(1001)}).encode()]


def test_a_disk_that_knows_no_capitals(tmp_path, monkeypatch):
    "As those of macOS and Windows: what is written last would be all."
    def there(path): return path.name.lower() in {p.name.lower() for p in path.parent.glob("*")}
    monkeypatch.setattr(Path, "exists", there)
    values, faults = {"x": np.ones(3), "X": np.zeros((2, 3)), "y": 1, "Y": np.ones(2)}, []
    with pytest.raises(DataError, match="'X' cannot be written.*another value.*rename"):
        write_values(tmp_path/"in", values)
    assert write_values(tmp_path/"out", values, faults=faults).keys() == {"x", "y", "Y"}
    assert np.array_equal(read_values(tmp_path/"out")["x"], values["x"]) and len(faults) == 1


@pytest.mark.parametrize("data", INDEXES, ids=range(len(INDEXES)))
def test_hostile_index(data):
    with pytest.raises(DataError): read_index(data, "out/index.json")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.dictionaries(
    st.sampled_from("abc") | st.text(max_size=4), st.sampled_from([*KINDS, "pkl", None]), max_size=3).map(lambda d: json.dumps(d).encode()))
@example(b'{"a": "npy", "b": "json"}')
def test_any_index_is_read_or_refused(data):
    try: index = read_index(data)
    except DataError: return
    assert all(kind in KINDS for kind in index.values())


def put(folder, index, **files):
    folder.mkdir(exist_ok=True)
    (folder/"index.json").write_text(json.dumps(index))
    for name, data in files.items(): (folder/name.replace("_", ".")).write_bytes(data)


def npy(header, data=b"", version=1):
    head = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(
        "<H" if version == 1 else "<I", len(head)) + head + data


LIES = {
    "a terabyte": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (125000000000,)}"),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n."),
    "negative": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", b"x"*8),
    "two negatives": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", b"x"*8),
    "too much": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", b"x"*9),
    "huge and empty": npy("{'descr': '<f8', 'fortran_order': False, "
                          "'shape': (0, 99999999999999999999)}"),
    "huge items": npy("{'descr': '|S99999999999', 'fortran_order': False, 'shape': (1,)}"),
    "fields": npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", b"x"*8),
    "code": npy("__import__('os').system('true')"),
    "nesting": npy("("*5000), "too deep for a message": npy("-"*9000 + "1"),
    "a long header": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f",
    "a zip": b"PK\x03\x04", "nothing": b"", "version 9": npy("{}", version=9),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_npy(tmp_path, lie):
    put(tmp_path/"out", {"a": "npy"}, a_npy=LIES[lie])
    with pytest.raises(DataError, match="refused as .npy"): read_values(tmp_path/"out")


@pytest.mark.parametrize("data", [
    b"", struct.pack("<Q", 2**60) + b"{}",
    struct.pack("<Q", 58) + b'{"a":{"dtype":"F32","shape":[999999],"data_offsets":[0,4]}}',
    struct.pack("<Q", 88) + b'{"__metadata__":{"keys":"[\\"b\\"]"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}xxxx'])
def test_lying_safetensors(tmp_path, data):
    put(tmp_path/"out", {"a": "safetensors"}, a_safetensors=data)
    with pytest.raises(DataError, match="refused as safetensors"): read_values(tmp_path/"out")


@pytest.mark.parametrize("data", [b"", b"{", b"["*10**5, b"\xff", b"9"*5000])
def test_broken_json(tmp_path, data):
    put(tmp_path/"out", {"a": "json"}, a_json=data)
    with pytest.raises(DataError, match="no readable JSON"): read_values(tmp_path/"out")


def test_links_pipes_and_missing_files(tmp_path):
    put(tmp_path/"out", {"a": "json"})
    with pytest.raises(DataError, match="'a' is not there"): read_values(tmp_path/"out")
    (tmp_path/"secret.json").write_text("1")
    (tmp_path/"out"/"a.json").symlink_to(tmp_path/"secret.json")
    with pytest.raises(DataError, match="'a' is not there"): read_values(tmp_path/"out")
    (tmp_path/"out"/"a.json").unlink()
    os.mkfifo(tmp_path/"out"/"a.json")
    with pytest.raises(DataError, match="'a' is not there"): read_values(tmp_path/"out")
    with pytest.raises(DataError, match="no index"): read_values(tmp_path/"nothing")


def test_sizes_are_checked_before_reading(tmp_path):
    with pytest.raises(DataError, match="'b' makes"):
        check_sizes({"a": "npy", "b": "npy"}, {"a.npy": 6*10**6, "b.npy": 6*10**6}, 10**7)
    with pytest.raises(DataError, match="'j' makes"):
        check_sizes({"j": "json"}, {"j.json": JSON_LIMIT + 1})
    put(tmp_path/"out", {"a": "npy"})
    with open(tmp_path/"out"/"a.npy", "wb") as f: f.truncate(2**33)
    with pytest.raises(DataError, match="'a' makes 8,589,934,592"): read_values(tmp_path/"out")


def test_importing_loads_the_standard_library_alone():
    code = ("import sys, mabe_nb.remote.inside.runner, mabe_nb.remote.inside.cell, mabe_nb.remote.values; "
            "print([m for m in ('numpy', 'torch', 'pydantic', 'safetensors', 'matplotlib', "
            "'platformdirs') if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "[]"
