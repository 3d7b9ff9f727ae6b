"""A publisher on this machine, who can be made to fail."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def publisher(files: dict[str, bytes], *, cut: int | None = None, stall: bool = False) -> Iterator[str]:
    """The address of a folder with `files`. With `cut`, only so many bytes of each are sent; then the connection is
    closed, or with `stall` kept open until the publisher goes home."""
    home = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.removeprefix("/"))
            if content is None:
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:cut])
            if stall:
                home.wait()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            home.set()
            server.shutdown()
            thread.join()
