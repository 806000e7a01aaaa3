"""A real HTTP server for one file, with Range, that can be told to hang up, to ignore Range or to refuse."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    content = b""
    cuts: list[int]  # bytes to send before hanging up, a connection each
    ranges = True
    length = True  # whether Content-Length is told
    status = 0
    requests: list[str | None]  # the Range header of each request

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.requests.append(asked)
        if server.status:
            self.send_error(server.status)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0  # type: ignore[index]
        if start and start >= len(server.content):
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(content: bytes) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.content, server.cuts, server.requests = content, [], []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
