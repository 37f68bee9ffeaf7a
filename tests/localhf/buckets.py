"Buckets as folders, filled through the real hf_xet."
import json
import threading
import time
from pathlib import Path


class Buckets:
    def __init__(self, root):
        self.root, self.store, self.private = root/"buckets", root/"xet", {}
        self.lock = threading.Lock()
        self.store.mkdir(parents=True)

    def folder(self, bucket): return self.root/bucket

    def create(self, bucket, private):
        known = bucket in self.private
        if not known:
            self.folder(bucket).mkdir(parents=True)
            self.private[bucket] = private
        return not known

    def connection(self):
        "Where the client's storage layer shall put its chunks."
        return {"casUrl": f"local://{self.store}", "accessToken": "none",
                "exp": int(time.time()) + 3600}

    def batch(self, bucket, body, url):
        "Add and delete files; `url` is where a token to read chunks is got."
        import hf_xet
        from huggingface_hub.utils._xet import get_xet_session
        lines, top = map(json.loads, body.splitlines()), self.folder(bucket)
        with self.lock, get_xet_session().new_file_download_group(
                token_refresh_url=url, token_refresh_headers={}, custom_headers={}) as group:
            for line in lines:
                path = top/line["path"]
                assert path.resolve().is_relative_to(top.resolve()), line
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                if line["type"] == "deleteFile": continue
                if set(line["xetHash"]) == {"0"}: path.touch()
                else: group.start_download_file(hf_xet.XetFileInfo(line["xetHash"]), str(path))
        return {"success": True, "processed": 1, "failed": []}

    def tree(self, bucket, prefix):
        top = self.folder(bucket)
        found = [p for p in top.rglob("*") if p.is_file()]
        names = [(p.relative_to(top).as_posix(), p) for p in found]
        return [{"type": "file", "path": name, "size": p.stat().st_size, "xetHash": "0" * 64}
                for name, p in sorted(names) if name.startswith(prefix)]

    def read(self, bucket, name) -> Path:
        path = self.folder(bucket)/name
        return path if path.is_file() else None
