"""The built pages as GitHub Pages serves them: compressed, under the book's own path.

An address under which there is no page gets 404.html, as there.
"""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import unquote, urlsplit

from book.site.address import address, published

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
# What hosts compress; fonts and pictures are compressed already.
COMPRESSED = {".html", ".css", ".js", ".svg", ".json", ".txt", ".xml", ".md"}


@cache
def packed(path: Path) -> bytes:
    """The bytes of one file as they go over the wire."""
    data = path.read_bytes()
    return gzip.compress(data, 6) if path.suffix in COMPRESSED else data


def prefix() -> str:
    """Path of the book on its host, such as `/name/`."""
    return urlsplit(published(address(ROOT))).path or "/"


class Pages(BaseHTTPRequestHandler):
    """Serves `_build/html` under `prefix()` without a line of log for each file."""

    protocol_version = "HTTP/1.1"
    start = prefix()

    def handle(self) -> None:
        """Take requests until the browser has gone, with or without a goodbye."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:  # the name that http.server calls
        name = unquote(urlsplit(self.path).path)
        path = (HTML / name.removeprefix(self.start)).resolve()
        if path.is_dir():
            path /= "index.html"
        ours = name.startswith(self.start) and path.is_relative_to(HTML)
        if ours and path.is_file():
            self.give(path, 200)
        else:
            self.give(HTML / "404.html", 404)

    def give(self, path: Path, status: int) -> None:
        """Send one file."""
        data = packed(path)
        self.send_response(status)
        self.send_header("Content-Type", guess_type(path.name)[0] or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "max-age=600")
        if path.suffix in COMPRESSED:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served() -> Iterator[str]:
    """Address of the built pages on the loopback interface, with a slash at its end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{Pages.start}"
        server.shutdown()
        thread.join()
