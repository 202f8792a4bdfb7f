"""A stand-in for the Hugging Face Hub: what ``huggingface_hub`` asks of it to make a repository, commit, download."""

import base64
import hashlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_ThisTokenMustNotBeSeenAnywhere"
USER = "ann"


class Repo:
    def __init__(self, private):
        self.private = private
        self.gated = False
        self.commits = {}  # sha: {path: bytes}
        self.branches = {}
        self.messages = []
        self.branches["main"] = self.commit({".gitattributes": b"*.parquet filter=lfs\n"})

    def commit(self, files):
        sha = hashlib.sha1(repr(sorted((name, hash(data)) for name, data in files.items())).encode()).hexdigest()
        self.commits[sha] = files
        return sha

    def resolve(self, revision):
        """The commit of a branch, a pull request or itself; None if there is none."""
        return self.branches.get(revision, revision if revision in self.commits else None)

    @property
    def files(self):
        return self.commits[self.branches["main"]]


class Hub(ThreadingHTTPServer):
    """Repositories by name, and every request that was made: ``(method, path, authorization, body)``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos = {}
        self.uploads = {}
        self.requests = []
        self.fail = {}  # a pattern of paths: the status to answer with

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def writes(self):
        """What was asked that changes something."""
        changing = re.compile(r"/(repos/create|commit/|preupload/|branch/)|/lfs/")
        return [path for method, path, *_ in self.requests if method != "GET" and changing.search(path)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.handle_one()

    def do_POST(self):
        self.handle_one()

    def do_PUT(self):
        self.handle_one()

    def do_HEAD(self):
        self.handle_one()

    def handle_one(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.headers.get("Content-Encoding") == "gzip":
            raise NotImplementedError
        path = unquote(urlsplit(self.path).path)
        self.query = urlsplit(self.path).query
        self.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.server.requests.append((self.command, path, self.token, body))
        for pattern, status in self.server.fail.items():
            if re.search(pattern, path):
                return self.answer({"error": "as asked for"}, status)
        if self.token and self.token != TOKEN:
            return self.answer({"error": "Invalid user token."}, 401)
        for pattern, act in ROUTES:
            if match := re.fullmatch(pattern, path):
                return act(self, body, *match.groups())
        return self.answer({"error": f"the stand-in knows no {self.command} {path}"}, 501)

    def answer(self, content, status=200, **headers):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass

    def repo(self, name, revision="main"):
        """The repository and the commit; None after having answered that there is none."""
        repo = self.server.repos.get(name)
        if repo is None or (repo.private and not self.token):
            status = 404 if self.token else 401
            return self.answer({"error": "Repository not found"}, status, X_Error_Code="RepoNotFound")
        if repo.gated and self.command != "HEAD" and "/resolve/" in self.path:
            return self.answer({"error": "Access is restricted"}, 403, X_Error_Code="GatedRepo")
        commit = repo.resolve(revision)
        if commit is None:
            return self.answer({"error": f"Invalid rev id: {revision}"}, 404, X_Error_Code="RevisionNotFound")
        return repo, commit

    def may_write(self, name):
        if self.token and name.partition("/")[0] == USER:
            return True
        self.answer({"error": "You don't have the rights"}, 403 if self.token else 401)
        return False


def whoami(at, body):
    if not at.token:
        return at.answer({"error": "Invalid username or password."}, 401)
    return at.answer({"name": USER, "type": "user", "fullname": "Ann", "auth": {"type": "access_token"}})


def validate(at, body):
    wrong = "license: !" in json.loads(body)["content"]
    at.answer({"errors": [{"message": "bad"}] if wrong else [], "warnings": []})


def create(at, body):
    asked = json.loads(body)
    name = f"{asked.get('organization') or USER}/{asked['name']}"
    if not at.may_write(name):
        return None
    if name in at.server.repos:
        return at.answer({"error": "You already created this dataset repo"}, 409)
    private = bool(asked.get("private")) or asked.get("visibility") == "private"
    at.server.repos[name] = Repo(private)
    return at.answer({"url": f"{at.server.url}/datasets/{name}", "id": name, "name": name})


def branch(at, body, name, new):
    if at.may_write(name) and (found := at.repo(name)):
        if new in found[0].branches:
            return at.answer({"error": "Reference already exists"}, 409)
        found[0].branches[new] = found[1]
        return at.answer({})
    return None


def info(at, body, name, revision="main"):
    if found := at.repo(name, revision):
        repo, commit = found
        siblings = [{"rfilename": path} for path in sorted(repo.commits[commit])]
        at.answer({"id": name, "sha": commit, "private": repo.private, "siblings": siblings, "tags": []})


def tree(at, body, name, revision, folder=None):
    if found := at.repo(name, revision):
        repo, commit = found
        prefix = f"{folder}/" if folder else ""
        rows = {}
        for path, data in sorted(repo.commits[commit].items()):
            inner = path.removeprefix(prefix)
            if not path.startswith(prefix):
                continue
            if "/" in inner and not re.search("recursive=true", at.query, re.IGNORECASE):
                place = prefix + inner.partition("/")[0]
                rows[place] = {"type": "directory", "path": place, "size": 0, "oid": git_oid(place.encode())}
            else:
                rows[path] = {"type": "file", "path": path, "size": len(data), "oid": git_oid(data)}
        at.answer(list(rows.values()))


def preupload(at, body, name, revision):
    if at.may_write(name) and at.repo(name, revision):
        files = json.loads(body)["files"]
        modes = {file["path"]: "lfs" if file["path"].endswith(".parquet") else "regular" for file in files}
        told = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
        at.answer({"files": told})


def lfs_batch(at, body, name):
    if at.may_write(name):
        objects = [
            {**one, "authenticated": True, "actions": {"upload": {"href": f"{at.server.url}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        at.answer({"transfer": "basic", "objects": objects})


def lfs_put(at, body, oid):
    assert hashlib.sha256(body).hexdigest() == oid
    at.server.uploads[oid] = body
    at.answer(b"")


def commit(at, body, name, revision):
    if not (at.may_write(name) and (found := at.repo(name, revision))):
        return None
    repo, parent = found
    files = dict(repo.commits[parent])
    for line in body.splitlines():
        entry = json.loads(line)
        key, value = entry["key"], entry["value"]
        if key == "header":
            repo.messages.append(value["summary"])
        elif key == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            files[value["path"]] = at.server.uploads[value["oid"]]
        elif key == "deletedFile":
            del files[value["path"]]
        else:
            raise NotImplementedError(key)
    pull = "create_pr=1" in at.query
    sha = repo.commit(files)
    repo.branches["refs/pr/1" if pull else revision] = sha
    page = f"{at.server.url}/datasets/{name}"
    pull_url = {"pullRequestUrl": f"{page}/discussions/1"} if pull else {}
    return at.answer({"success": True, "commitOid": sha, "commitUrl": f"{page}/commit/{sha}", **pull_url})


def resolve(at, body, name, revision, path):
    if found := at.repo(name, revision):
        repo, sha = found
        data = repo.commits[sha].get(path)
        if data is None:
            return at.answer({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
        return at.answer(data, X_Repo_Commit=sha, ETag=f'"{git_oid(data)}"', Accept_Ranges="bytes")
    return None


def git_oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = [
    (r"/api/whoami-v2", whoami),
    (r"/api/validate-yaml", validate),
    (r"/api/repos/create", create),
    (rf"/api/datasets/{NAME}/branch/(.+)", branch),
    (rf"/api/datasets/{NAME}", info),
    (rf"/api/datasets/{NAME}/revision/(.+)", info),
    (rf"/api/datasets/{NAME}/tree/(\w+)(?:/(.+))?", tree),
    (rf"/api/datasets/{NAME}/preupload/(.+)", preupload),
    (rf"/datasets/{NAME}\.git/info/lfs/objects/batch", lfs_batch),
    (r"/lfs/(\w+)", lfs_put),
    (rf"/api/datasets/{NAME}/commit/(.+)", commit),
    (rf"/datasets/{NAME}/resolve/([^/]+|refs/pr/\d+)/(.+)", resolve),
]


def set_constants(monkeypatch, **values):
    """Change constants of ``huggingface_hub`` wherever one of its modules holds a copy, as those of old versions do."""
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: F401  # loads the modules that matter

    for name, value in values.items():
        monkeypatch.setattr(constants, name, value, raising=False)
        for module in [module for key, module in sys.modules.items() if key.startswith("huggingface_hub.")]:
            if name in vars(module):
                monkeypatch.setattr(module, name, value)
    from huggingface_hub.utils import _http

    getattr(_http, "reset_sessions", lambda: None)()  # old versions decide once a thread whether they are offline


def set_endpoint(monkeypatch, url):
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    set_constants(monkeypatch, ENDPOINT=url, HUGGINGFACE_CO_URL_TEMPLATE=template)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The stand-in, at which ``huggingface_hub`` looks; its cache is empty, and the user is logged in."""
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        set_endpoint(monkeypatch, server.url)
        cache = str(tmp_path / "hf-cache")
        set_constants(monkeypatch, HF_HUB_CACHE=cache, HUGGINGFACE_HUB_CACHE=cache)
        set_constants(monkeypatch, HF_TOKEN_PATH=str(tmp_path / "no-token"), HF_HUB_OFFLINE=False)
        set_constants(monkeypatch, HF_HUB_DISABLE_XET=True)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
        server.shutdown()
        thread.join()
