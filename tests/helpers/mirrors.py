"""A local server of files that answers as the Hugging Face hub does and can cut its connections."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0" * 39 + "1"


@dataclass
class Mirror:
    """The files that the server sends, and the requests that it has received."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """The content by path."""
    cuts: list[int] = field(default_factory=list)
    """The numbers of bytes after which the next downloads end; listings are never cut."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """The path and Range header of every GET request."""

    @property
    def downloads(self) -> list[tuple[str, str | None]]:
        """The requests for files, without those for the hub's listings."""
        return [(path, span) for path, span in self.requests if not path.startswith("/api/")]

    def put_set(self, name: str, files: dict[str, bytes]) -> None:
        """Serve a hub data set with the same content at every revision."""
        tree = [
            {
                "type": "file",
                "path": path,
                "size": len(content),
                "oid": "0" * 40,
                "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130},
            }
            for path, content in files.items()
        ]
        siblings = [{"rfilename": path} for path in files]
        for revision in ("main", "refs/convert/parquet", COMMIT):
            about = {"id": name, "sha": COMMIT, "tags": [], "private": False, "siblings": siblings}
            self.files[f"/api/datasets/{name}/revision/{revision}"] = json.dumps(about).encode()
        self.files[f"/api/datasets/{name}/tree/{COMMIT}"] = json.dumps(tree).encode()
        for path, content in files.items():
            self.files[f"/datasets/{name}/resolve/{COMMIT}/{path}"] = content


class _Handler(BaseHTTPRequestHandler):
    mirror: Mirror
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        content = self._content()
        if content is not None:
            self._head(200, content, len(content))

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        self.mirror.requests.append((self._path(), span))
        content = self._content()
        if content is None:
            return
        start = int(span.removeprefix("bytes=").partition("-")[0]) if span else 0
        self._head(206 if span else 200, content, len(content) - start, start)
        cuts = self.mirror.cuts if not self._path().startswith("/api/") else []
        end = start + cuts.pop(0) if cuts else None
        self.wfile.write(content[start:end])
        self.close_connection = end is not None

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _content(self) -> bytes | None:
        content = self.mirror.files.get(self._path())
        if content is None:
            self.send_error(404)
        return content

    def _head(self, status: int, content: bytes, length: int, start: int = 0) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Type", "application/json" if "/api/" in self.path else "application/data")
        self.send_header("Content-Length", str(length))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Mirror]:
    """Run a server for the time of the block and yield its files."""
    mirror = Mirror()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"mirror": mirror}))
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
