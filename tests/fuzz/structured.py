"""Faults that leave a file's form whole: other values, types and sizes in a good file."""
import json
import struct

import h5py
import numpy as np
import pandas as pd

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
    else: out[key] = change(out[key], rng)
    return out


def in_json(path, rng):
    path.write_text(json.dumps(change(json.loads(path.read_text()), rng)), "utf-8",
                    "surrogatepass")


def in_npy(path, rng):
    np.save(path, np.array(change(np.load(path, allow_pickle=True).item(), rng), object),
            allow_pickle=True)


def in_safetensors(path, rng):
    "Another value in the metadata, or in the list of tensors."
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + size])
    if rng.random() < 0.8:
        about = json.loads(head["__metadata__"]["mabe"])
        head["__metadata__"]["mabe"] = json.dumps(change(about, rng))
    else: head = change(head, rng)
    new = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + size:])


def in_parquet(path, rng):
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
    lines = path.read_text().split("\n")
    at, mark = rng.randrange(len(lines)), "\t" if "\t" in lines[0] else ","
    cells = lines[at].split(mark)
    if rng.random() < 0.7: cells[rng.randrange(len(cells))] = str(rng.choice(ODD))
    else: cells = rng.choice([[], cells * 2, cells[:-1], ["9" * 5000], ["[" * 3000]])
    lines[at] = mark.join(cells)
    path.write_text("\n".join(lines), "utf-8", "surrogatepass")


def in_hdf(path, rng):
    "Another dataset or attribute: of another type or shape, elsewhere, or gone."
    with h5py.File(path, "a") as f:
        found = []
        f.visit(found.append)
        name = rng.choice(found)
        item, kind = f[name], rng.randrange(8)
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


BY_SUFFIX = {".json": in_json, ".npy": in_npy, ".safetensors": in_safetensors,
             ".parquet": in_parquet, **dict.fromkeys((".h5", ".slp", ".nwb"), in_hdf),
             **dict.fromkeys((".csv", ".txt", ".annot", ".yaml"), in_table)}
