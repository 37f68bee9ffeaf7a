"HTTP, the token, the routes."
import json
import re
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from .buckets import Buckets
from .jobs import OVER, Container

FLAVORS = ("cpu-basic", "t4-small", "a10g-small", "l4x1")
BUCKET = r"/api/buckets/([\w.-]+/[\w.-]+)"
JOBS = r"/api/jobs/([\w.-]+)"


class LocalHub:
    "Everything there is of Hugging Face, in a folder."
    def __init__(self, root, user="mouse"):
        self.root, self.user, self.token = root, user, "hf_" + secrets.token_hex(16)
        self.buckets, self.jobs, self.asked = Buckets(root), {}, []
        self.drop, self.skip, self.refuse, self.lose, self.proxy = [], (), {}, 0, 0
        self.later = {} # Headers of what is refused
        self.odd = {} # What a list of jobs says of each instead
        self.say = {} # Part of a request -> bytes that answer it; None: silence
        self.hold = threading.Event()
        self.hold.set()

    def __enter__(self):
        handler = type("Handler", (Handler,), {"hub": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=[0.05], daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.env = {"HF_ENDPOINT": self.url, "HF_TOKEN": self.token,
                    "HF_HOME": str(self.root/"home")}
        return self

    def __exit__(self, *error):
        for job in self.jobs.values(): job.end("CANCELED", grace=0.2)
        self.http.shutdown()
        self.http.server_close()

    def run(self, owner, spec):
        mounts = {v["mountPath"]: self.buckets.folder(v["source"])/v["path"]
                  for v in spec.get("volumes", [])}
        id = secrets.token_hex(12)
        self.jobs[id] = Container(id, owner, spec, mounts, self.hold)
        return self.jobs[id]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *words): pass

    def do_GET(self): self.route("GET", b"")

    def do_POST(self):
        self.route("POST", self.rfile.read(int(self.headers.get("content-length") or 0)))

    def answer(self, value, status=200, **headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items(): self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, message="", code=""):
        self.answer({"error": message}, status, X_Error_Message=message,
                    **({"X_Error_Code": code} if code else {}))

    def route(self, method, body):
        url = urlsplit(self.path)
        self.hub.asked.append(f"{method} {url.path}")
        for part, status in self.hub.refuse.items():
            if part in f"{method} {url.path}": return self.answer(
                {"error": "refused by a test"}, status, X_Error_Message="refused by a test",
                **self.hub.later)
        for part, data in self.hub.say.items():
            if part in f"{method} {url.path}": return data is None or self.answer(data)
        free = "xet-read-token" in url.path # asked by ourselves
        if not free and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            return self.error(401, "Invalid credentials in Authorization header")
        for verb, pattern, name in ROUTES:
            found = re.fullmatch(pattern, url.path)
            if verb != method or not found: continue
            self.query = parse_qs(url.query)
            return getattr(self, name)(*found.groups(), body)
        self.error(404, f"no such route: {method} {url.path}")

    def whoami(self, body): self.answer({"name": self.hub.user, "type": "user"})

    # buckets

    def create_bucket(self, bucket, body):
        new = self.hub.buckets.create(bucket, json.loads(body).get("visibility") == "private")
        self.answer({"url": f"{self.hub.url}/buckets/{bucket}"}, 200 if new else 409)

    def bucket_info(self, bucket, body):
        if bucket not in self.hub.buckets.private:
            return self.error(404, "no such bucket", "RepoNotFound")
        self.answer({"id": bucket, "private": self.hub.buckets.private[bucket], "size": 0,
                     "createdAt": "2026-01-01T00:00:00.000Z", "totalFiles": 0})

    def xet_token(self, bucket, body): self.answer(self.hub.buckets.connection())

    def batch(self, bucket, body):
        url = f"{self.hub.url}/api/buckets/{bucket}/xet-read-token"
        self.answer(self.hub.buckets.batch(bucket, body, url))

    def tree(self, bucket, prefix, body):
        if bucket not in self.hub.buckets.private:
            return self.error(404, "no such bucket", "RepoNotFound")
        self.answer(self.hub.buckets.tree(bucket, unquote(prefix or "").strip("/")))

    def resolve(self, bucket, name, body):
        path = self.hub.buckets.read(bucket, unquote(name))
        if path is None: return self.error(404, "Entry not found", "EntryNotFound")
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        with open(path, "rb") as f:
            try:
                while data := f.read(2**16): self.wfile.write(data)
            except OSError: self.close_connection = True # the client has enough

    # jobs

    def run_job(self, owner, body):
        spec = json.loads(body)
        if spec["flavor"] not in FLAVORS: return self.error(400, "unknown flavor")
        job = self.hub.run(owner, spec)
        if isinstance(self.hub.proxy, bytes): return self.answer(self.hub.proxy)
        if self.hub.proxy: return self.error(self.hub.proxy, "from a proxy; it runs")
        if not self.hub.lose: return self.answer(job.info())
        self.hub.lose -= 1
        self.close_connection = True # it runs, and nobody is told

    def list_jobs(self, owner, body):
        if self.hub.lose: self.close_connection = True
        else: self.answer([job.info() | self.hub.odd for job in self.hub.jobs.values()])

    def job(self, id): return self.hub.jobs.get(id)

    def job_info(self, owner, id, body):
        job = self.job(id)
        self.answer(job.info()) if job else self.error(404, "no such job")

    def cancel(self, owner, id, body):
        job = self.job(id)
        if job is None: return self.error(404, "no such job")
        job.end("CANCELED")
        self.answer({})

    def logs(self, owner, id, body):
        "All lines from the first on, and what comes; broken off where a test wants it."
        job, i = self.job(id), 0
        if job is None: return self.error(404, "no such job")
        most = self.hub.drop.pop(0) if self.hub.drop else None
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                with job.news:
                    if i == len(job.lines) and job.stage not in OVER: job.news.wait(1)
                    lines, over = job.lines[i:], job.stage in OVER
                for line in lines:
                    if most == i: return self.connection.shutdown(2)
                    i += 1
                    if i in self.hub.skip: continue
                    self.chunk(f"data: {json.dumps(line)}\n\n".encode())
                if over: return self.chunk(b"")
        except OSError: self.close_connection = True

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


ROUTES = [
    ("GET", "/api/whoami-v2", "whoami"), ("POST", BUCKET, "create_bucket"),
    ("GET", BUCKET, "bucket_info"), ("GET", BUCKET + "/xet-(?:read|write)-token", "xet_token"),
    ("POST", BUCKET + "/batch", "batch"), ("GET", BUCKET + "/tree(/.*)?", "tree"),
    ("GET", r"/buckets/([\w.-]+/[\w.-]+)/resolve/(.+)", "resolve"),
    ("POST", JOBS, "run_job"), ("GET", JOBS, "list_jobs"), ("GET", JOBS + r"/(\w+)", "job_info"),
    ("POST", JOBS + r"/(\w+)/cancel", "cancel"), ("GET", JOBS + r"/(\w+)/logs", "logs")]
