"""A hub on the loopback: enough of its API for the real huggingface_hub client, and the faults that tests ask for.

Endpoints as in huggingface.co/docs/hub/api: model info with file metadata, and files by HEAD and GET with Range, ETag,
X-Repo-Commit and X-Linked-*. Large files are those whose names end as weights do; they carry a SHA-256.
"""

import hashlib
import http.server
import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

WEIGHTS = (".gguf", ".safetensors", ".bin")
GATED, MISSING = "GatedRepo", "RepoNotFound"


@dataclass
class Repo:
    """Files of one commit. refused: status and X-Error-Code of every answer about it."""

    files: dict[str, bytes]
    tags: list[str] = field(default_factory=list)
    commit: str = "a" * 40
    refused: tuple[int, str] | None = None


class HubServer:
    """Serves `repos`; `asked` lists what it saw as "METHOD path" and, where there was one, the Range.

    cut: a body breaks off after that many bytes, `cuts` times. stall: a body stops there until close(). damaged: bodies
    come with a byte changed.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.asked: list[str] = []
        self.cut, self.cuts, self.stall, self.damaged = 0, 0, 0, False
        self._closed = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.stalled = threading.Event()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stops serving."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def bodies(self, path: str) -> list[str]:
        """The requests that had a file's content as their answer."""
        return [line for line in self.asked if line.startswith("GET ") and f"/{path}" in line and "/resolve/" in line]

    def answer(self, request: Any) -> None:
        """Answers one HEAD or GET."""
        url = urllib.parse.unquote(request.path.partition("?")[0])
        span = request.headers.get("Range")
        self.asked.append(f"{request.command} {url}" + (f" {span}" if span else ""))
        name, revision, path = _parts(url)
        repo = self.repos.get(name)
        if repo is None:
            return _refuse(request, 404, MISSING)
        if repo.refused is not None:
            return _refuse(request, *repo.refused)
        if revision not in ("main", repo.commit):
            return _refuse(request, 404, "RevisionNotFound")
        if path is None:
            return self._send(request, json.dumps(_info(name, repo)).encode(), {"Content-Type": "application/json"})
        if path not in repo.files:
            return _refuse(request, 404, "EntryNotFound", {"X-Repo-Commit": repo.commit})
        return self._send(request, repo.files[path], _headers(path, repo))

    def _send(self, request: Any, body: bytes, headers: dict[str, str]) -> None:
        begin = 0
        span = request.headers.get("Range")
        if span:
            begin = int(span.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        request.send_response(206 if span else 200)
        for key, value in {**headers, "Content-Length": str(len(body) - begin)}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if "X-Repo-Commit" in headers:
            body = self._spoiled(request, body, begin)
        request.wfile.write(body[begin:])

    def _spoiled(self, request: Any, body: bytes, begin: int) -> bytes:
        if self.stall:
            request.wfile.write(body[begin : self.stall])
            request.wfile.flush()
            self.stalled.set()
            self._closed.wait()
            return b""
        if self.cuts and self.cut > begin:
            self.cuts -= 1
            return body[: self.cut]
        return body[:-1] + bytes([body[-1] ^ 1]) if self.damaged else body


def _handler(hub: HubServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.answer(self)

        def do_GET(self) -> None:
            hub.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _parts(url: str) -> tuple[str, str, str | None]:
    """Repository, revision and, for a file, its path."""
    words = url.strip("/").split("/")
    if words[:2] == ["api", "models"]:
        return "/".join(words[2:4]), words[5] if len(words) > 5 else "main", None
    return "/".join(words[:2]), words[3] if len(words) > 3 else "", "/".join(words[4:])


def _refuse(request: Any, status: int, code: str, headers: dict[str, str] | None = None) -> None:
    request.send_response(status)
    for key, value in {"X-Error-Code": code, "Content-Length": "0", **(headers or {})}.items():
        request.send_header(key, value)
    request.end_headers()


def _headers(path: str, repo: Repo) -> dict[str, str]:
    body = repo.files[path]
    headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes", "ETag": f'"{hashlib.sha1(body).hexdigest()}"'}
    if path.endswith(WEIGHTS):
        headers |= {"X-Linked-Etag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": str(len(body))}
    return headers


def _info(name: str, repo: Repo) -> dict[str, Any]:
    files = [_sibling(path, body) for path, body in repo.files.items()]
    return {"id": name, "sha": repo.commit, "private": False, "tags": repo.tags, "siblings": files}


def _sibling(path: str, body: bytes) -> dict[str, Any]:
    file: dict[str, Any] = {"rfilename": path, "size": len(body), "blobId": hashlib.sha1(body).hexdigest()}
    if path.endswith(WEIGHTS):
        file["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
    return file
