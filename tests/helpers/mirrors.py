"""A local server of files, with byte ranges, the hub's listings, and connections that can be cut."""

from __future__ import annotations

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
    """`cuts` are numbers of bytes after which the next answers end; `asked` is what was asked, path and Range."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: bool = True

    def put_set(self, name: str, files: dict[str, bytes], checksums: dict[str, str] | None = None) -> None:
        """A hub data set at one commit, whatever revision is asked for."""
        tree = [
            {
                "type": "file",
                "path": path,
                "size": len(content),
                "oid": "0" * 40,
                "lfs": {
                    "oid": (checksums or {}).get(path) or hashlib.sha256(content).hexdigest(),
                    "size": len(content),
                    "pointerSize": 130,
                },
            }
            for path, content in files.items()
        ]
        for revision in ("main", "refs/convert/parquet"):
            about = {"id": name, "sha": COMMIT, "tags": [], "private": False, "siblings": []}
            self.files[f"/api/datasets/{name}/revision/{revision}"] = json.dumps(about).encode()
        self.files[f"/api/datasets/{name}/tree/{COMMIT}"] = json.dumps(tree).encode()
        for path, content in files.items():
            self.files[f"/datasets/{name}/resolve/{COMMIT}/{path}"] = content


@contextmanager
def serving() -> Iterator[Mirror]:
    mirror = Mirror()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            wanted = self.headers.get("Range")
            mirror.asked.append((path, wanted))
            content = mirror.files.get(path)
            if content is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            start, status = 0, 200
            if mirror.ranges and wanted and self.headers.get("If-Range", tag) == tag:
                start, status = int(wanted.removeprefix("bytes=").partition("-")[0]), 206
            if status == 206 and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(status)
            self.send_header("ETag", tag)
            self.send_header("Content-Type", "application/json" if path.startswith("/api/") else "application/data")
            self.send_header("Content-Length", str(len(content) - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            cut = mirror.cuts.pop(0) if mirror.cuts and not path.startswith("/api/") else None
            self.wfile.write(content[start : None if cut is None else start + cut])
            self.close_connection = cut is not None

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
