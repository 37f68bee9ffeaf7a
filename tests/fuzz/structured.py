"""Faults that leave a file's form whole: other values, types and sizes in a good file."""
import json
import string
import struct

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ODD = [None, True, -1, 0, 2**31, 2**63, 10**300, 1e308, float("nan"), "", "x", "None", "=1+1",
       "\x1b[2J", "a\rb", "../x", "٣", [], {}, [[]], [None], {"x": 1}, "a" * 10**5, [0] * 10**4]


def nested(depth): return [nested(depth - 1)] if depth else []


def change(tree, rng):
    "A tree of dictionaries and lists with one node replaced, doubled or gone."
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.2:
        return rng.choice([*ODD, nested(rng.choice((30, 90, 500)))])
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key, out = rng.choice(keys), tree.copy()
    kind = rng.random()
    if kind < 0.1: del out[key]
    elif kind < 0.2 and isinstance(out, dict): out[str(rng.choice(ODD))[:50]] = out.pop(key)
    elif kind < 0.3: out[key] = out[rng.choice(keys)] # what belongs to another
    elif kind < 0.4: out[key] = other_form(out[key], rng)
    else: out[key] = change(out[key], rng)
    return out


def other_form(value, rng):
    "The same value in another form, or a number far from it."
    if isinstance(value, (int, float)):
        return rng.choice([str(value), [value], -value, value * 10**rng.choice((3, 9, 200)),
                           value + 0.5, float(value), bool(value), hex(int(abs(value) % 2**60))])
    if isinstance(value, str):
        return rng.choice([[value], value.upper(), value + " ", value.encode("utf-16").decode("latin-1"),
                           value * 1000, "".join(rng.sample(string.printable, 9)), {value: value}])
    if isinstance(value, list): return rng.choice([value * 1000, value[::-1], dict(enumerate(value))])
    return [value, value] if value is None else rng.choice([[*value.items()], [value]])


def in_json(path, rng):
    text = path.read_text()
    if rng.random() < 0.1: # everything twice
        text = text.rstrip().rstrip("}]") + ", " + text.lstrip().lstrip("{[")
    else: text = json.dumps(change(json.loads(text), rng), default=str)
    path.write_text(text, "utf-8", "surrogatepass")


def in_lines(path, rng):
    "One line of JSON lines, or a line more."
    lines = path.read_text().splitlines() or ["{}"]
    new = json.dumps(change(json.loads(rng.choice(lines)), rng))
    if rng.random() < 0.5: lines[rng.randrange(len(lines))] = new
    else: lines = [*lines, new] * rng.choice((1, 1, 3000))
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi"))


def in_yaml(path, rng):
    if rng.random() < 0.3: return in_table(path, rng)
    more = rng.choice(["", "", "", LAUGHS, "? [a, b]\n: c\n", "<<: {fps: 1}\n", "---\nfps: 2\n",
                       "fps: 1:30\n", "fps: 0o17\n", "lab: 2026-13-45\n", "lab: !!binary x\n",
                       "seed: !!int ''\n", "fps: .inf\n", "&x lab: *x\n", "lab: !!set {a}\n"])
    path.write_text(yaml.safe_dump(change(yaml.safe_load(path.read_text()), rng)) + more,
                    "utf-8", "surrogatepass")


def in_npy(path, rng):
    if np.load(path, allow_pickle=True).ndim: return in_array(path, rng)
    np.save(path, np.array(change(np.load(path, allow_pickle=True).item(), rng), object),
            allow_pickle=True)


def in_safetensors(path, rng):
    "Another value in the metadata, or in the list of tensors."
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + size])
    if rng.random() < 0.3: # the numbers themselves
        word = struct.pack("<f", rng.choice((np.nan, np.inf, 1e38, 0)))
        path.write_bytes(data[:8 + size] + word * ((len(data) - 8 - size) // 4))
        return
    if rng.random() < 0.8:
        key = rng.choice(list(head["__metadata__"]))
        about = json.loads(head["__metadata__"][key])
        head["__metadata__"][key] = json.dumps(change(about, rng))
    else: head = change(head, rng)
    new = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + size:])


TYPES = [pa.string(), pa.large_string(), pa.float16(), pa.float64(), pa.int8(), pa.uint64(), pa.bool_(),
         pa.decimal128(38, 9), pa.timestamp("ns"), pa.binary(), pa.dictionary(pa.int8(), pa.string()),
         pa.list_(pa.int64()), pa.null(), pa.duration("s"), pa.struct([("x", pa.int64())])]


def in_arrow(path, rng):
    "Another type of column, a name twice, no rows, or very many that take no room."
    table = pq.read_table(path)
    at, kind = rng.randrange(table.num_columns), rng.randrange(6)
    if kind < 3:
        dtype, old = rng.choice(TYPES), table.column(at)
        try: new = old.cast(dtype, safe=False)
        except pa.ArrowException: new = pa.nulls(len(table), dtype)
        table = table.set_column(at, table.column_names[at], new)
    elif kind == 3: table = table.append_column(table.column_names[at], table.column(at))
    elif kind == 4: table = table.slice(0, rng.choice((0, 1)))
    else:
        row = table.slice(0, 1).take([0] * 10**6)
        with pq.ParquetWriter(path, table.schema) as to:
            for _ in range(rng.choice((20, 100))): to.write_table(row)
        return
    pq.write_table(table, path, row_group_size=rng.choice((1, 10**6)),
                   compression=rng.choice(["none", "zstd", "gzip"]))


def in_parquet(path, rng):
    if rng.random() < 0.4: return in_arrow(path, rng)
    table = pd.read_parquet(path).astype(object)
    name, kind = rng.choice(list(table)), rng.randrange(5)
    if kind == 0: table = table.drop(columns=name)
    elif kind == 1: table = table.rename(columns={name: rng.choice(list(table))})
    elif kind == 2: table = table.sample(frac=rng.random() * 2, replace=True, random_state=1)
    else:
        rows = rng.sample(range(len(table)), rng.choice((1, len(table))))
        odd = rng.choice([v for v in ODD if not isinstance(v, (list, dict, bool))])
        table.iloc[rows, table.columns.get_loc(name)] = odd
    try: table.infer_objects().to_parquet(path, index=False)
    except (ValueError, OverflowError, TypeError, UnicodeError): # mixed types
        table.astype(str).to_parquet(path, index=False)


def in_table(path, rng):
    "Another cell or line in a file of text."
    if rng.random() < 0.4: return in_columns(path, rng)
    lines = path.read_text().split("\n")
    at, mark = rng.randrange(len(lines)), "\t" if "\t" in lines[0] else ","
    cells = lines[at].split(mark)
    if rng.random() < 0.7: cells[rng.randrange(len(cells))] = str(rng.choice(ODD))
    else: cells = rng.choice([[], cells * 2, cells[:-1], ["9" * 5000], ["[" * 3000]])
    lines[at] = mark.join(cells)
    path.write_text("\n".join(lines), "utf-8", "surrogatepass")


NUMBERS = ["1e5", "0x10", "1_000", "9007199254740993", "-0", "+1", "1e-320", "inf", "1,5", "1:30",
           "00001", " 1 ", "1.", "½", "TRUE", "2026-11-22", "#REF!", "1\x00", "'1", "1e400"]


def in_columns(path, rng):
    "A whole column, the order or number of rows, the marks between cells, quotes."
    lines = [x for x in path.read_text().split("\n") if x]
    mark = "\t" if "\t" in lines[0] else ","
    rows, kind = [x.split(mark) for x in lines], rng.randrange(10)
    at = rng.randrange(len(rows[0]))
    if kind < 3:
        odd = rng.choice(NUMBERS)
        some = rows[1:] if kind else [rng.choice(rows)]
        for r in some: r[at:at + 1] = [odd]
    elif kind == 3: rows = [[*r, *r[at:at + 1]] for r in rows] # a column twice
    elif kind == 4: rows = [r[at:] + r[:at] for r in rows]
    elif kind == 5: rows = [rows[0], *rng.sample(rows[1:], len(rows) - 1)]
    elif kind == 6: rows = rows + rows[1:] * rng.choice((1, 2, 20000))
    elif kind == 7: rows = [*rows, rows[0], *rows]
    elif kind == 8: rows = [list(x) for x in zip(*(r + [""] * 99 for r in rows))]
    else: rows[0][at] = rng.choice(["", '"', *NUMBERS, "Behavior", "video", rows[0][0]])
    mark = rng.choice([mark] * 6 + [";", "|", "\t", ", "])
    text = rng.choice(["\n"] * 4 + ["\r\n", "\r", "\x0b", "\u2028"]).join(mark.join(r) for r in rows)
    path.write_bytes((text + "\n").encode(rng.choice(
        ["utf-8"] * 5 + ["utf-8-sig", "utf-16", "cp1252"]), "replace"))


def other_array(a, rng):
    "An array in another type or shape."
    kind = rng.randrange(8)
    if kind == 0: return a.astype(rng.choice(["f2", ">f8", "c16", "i1", "u8", "S4", "U3", "?", "O"]))
    if kind == 1: return np.asfortranarray(a)
    if kind == 2: return a.reshape(-1)
    if kind == 3: return a[..., None]
    if kind == 4: return a[:rng.choice((0, 1))]
    if kind == 5: return np.full(a.shape, rng.choice((np.nan, np.inf, -1e308, 1e30)))
    if kind == 6: return a.astype([("x", a.dtype)]) if a.dtype.kind in "fiu" else a
    return np.zeros((rng.choice((10**6, 10**8)),), "u1").reshape(-1, *[1] * max(a.ndim - 1, 0))


def in_npz(path, rng):
    with np.load(path) as f: all_ = dict(f)
    name, kind = rng.choice(list(all_)), rng.randrange(6)
    if kind == 0: del all_[name]
    elif kind == 1: all_[rng.choice(["../x", "a" * 300, "keypoints/x", "é"])] = all_.pop(name)
    else: all_[name] = other_array(all_[name], rng)
    rng.choice([np.savez, np.savez_compressed])(path, **all_)


def in_array(path, rng):
    "Prepared features of another type, shape or value."
    a = np.load(path)
    if rng.random() < 0.3: a = a.astype("f4") + np.float32(rng.choice((1e-7, 1, 1e30)))
    else: a = other_array(a, rng)
    np.save(path, a, allow_pickle=a.dtype == object)


def other_dataset(f, name, rng):
    "The values of a dataset in another type, shape or layout; or another one's."
    old, kind = f[name], rng.randrange(6)
    try: kept, about = old[()], dict(old.attrs)
    except Exception: kept, about = np.zeros(3), {}
    del f[name]
    if kind == 0: f[name] = np.asarray(kept).ravel()[:1].tolist() or 0
    elif kind == 1: f[name] = h5py.Empty(rng.choice(["f4", "S5"]))
    elif kind == 2:
        f.create_dataset(name, np.shape(kept) or (1,), h5py.string_dtype())
    elif kind == 3: f.create_dataset(name, (10**6, 60), "u1", compression="gzip", chunks=(10**4, 60))
    elif kind == 4: f[name] = rng.choice([v for v in f.values() if isinstance(v, h5py.Dataset)]
                                         or [np.zeros((2, 2), "c8")])[()]
    elif np.asarray(kept).dtype.kind in "fiu": f[name] = other_array(np.asarray(kept), rng)
    else: f[name] = np.zeros((1,) * 7)
    for key, value in about.items(): f[name].attrs[key] = value


def in_hdf(path, rng):
    "Another dataset or attribute: of another type or shape, elsewhere, or gone."
    with h5py.File(path, "a") as f:
        found = []
        f.visit(found.append)
        name = rng.choice(found)
        item, kind = f[name], rng.randrange(8)
        if isinstance(item, h5py.Dataset) and rng.random() < 0.4:
            return other_dataset(f, name, rng)
        if item.attrs and kind < 2:
            item.attrs[rng.choice(list(item.attrs))] = rng.choice(
                [0, -1, 2**62, "x", b"\x80\x04N.", np.zeros(3), 1e300, b"{" * 500, b"[1]"])
            return
        shape = getattr(item, "shape", None) or (3,)
        kept = item[()] if isinstance(item, h5py.Dataset) else None
        del f[name]
        if kind == 2: return
        if kind == 3: f[name] = h5py.ExternalLink("/etc/hostname", "/x")
        elif kind == 4: f[name] = h5py.SoftLink(rng.choice(("/", "/gone", f"/{name}")))
        elif kind == 5: f.create_dataset(name, (rng.choice((10**4, 10**6, 10**9)), *shape[1:]), "f8")
        elif kind == 6: f.create_dataset(name, data=np.zeros(shape[::-1]))
        elif kept is not None and kept.dtype.kind in "iuf":
            f[name] = np.full(shape, rng.choice((-1, 99, 2**31, 2**62, np.nan)))
        else: f[name] = rng.choice(["x", b"\xff" * 9, np.zeros(0), "{" * 900])


BY_SUFFIX = {".json": in_json, ".jsonl": in_lines, ".npy": in_npy, ".npz": in_npz, ".yaml": in_yaml,
             ".safetensors": in_safetensors, ".parquet": in_parquet,
             **dict.fromkeys((".h5", ".slp", ".nwb", ".nc"), in_hdf),
             **dict.fromkeys((".csv", ".txt", ".annot"), in_table)}
