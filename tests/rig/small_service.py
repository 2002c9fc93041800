"""A program that listens as a notebook does: HTTP with bodies both ways, redirects, cookies, a WebSocket that echoes.

It runs as a task on a host, by whatever Python is there.
"""

import base64
import hashlib
import http.server
import json
import struct
import sys
from typing import Any

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.echo()
        elif self.path == "/away":
            self.answer(b"", 302, [("Location", "/there?a=1")])
        elif self.path == "/drip":
            self.drip()
        elif self.path == "/hold":
            self.hold()
        else:
            seen = {"path": self.path, "headers": dict(self.headers.items())}
            cookies = [
                ("Set-Cookie", "mine=1; Path=/; Domain=example.org"),
                ("Set-Cookie", "sessionid=x; Path=/"),
            ]
            self.answer(json.dumps(seen).encode(), 200, cookies)

    def do_POST(self) -> None:
        digest = hashlib.sha256()
        for block in self.body():
            digest.update(block)
        self.answer(digest.hexdigest().encode())

    def body(self) -> Any:
        if "Content-Length" in self.headers:
            yield self.rfile.read(int(self.headers["Content-Length"]))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def drip(self) -> None:
        """Some hundred kilobytes in chunks."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(3):
            line = f"line {number}\n".encode() * 20000
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def hold(self) -> None:
        """The beginning of an answer that has no end, for as long as anybody waits for it."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"6\r\nbegun\n\r\n")
        self.rfile.read(1)

    def answer(self, body: bytes, status: int = 200, more: Any = ()) -> None:
        self.send_response(status)
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def echo(self) -> None:
        """Frames as they come, until the client closes."""
        key = (self.headers["Sec-WebSocket-Key"] + GUID).encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key).digest()).decode())
        if wanted := self.headers.get("Sec-WebSocket-Protocol"):
            self.send_header("Sec-WebSocket-Protocol", wanted.split(",")[0].strip())
        self.end_headers()
        self.close_connection = True
        while True:
            first, second = self.rfile.read(2)
            size = second & 127
            if size > 125:
                size = struct.unpack(
                    *((">H", self.rfile.read(2)) if size == 126 else (">Q", self.rfile.read(8)))
                )[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
            form, mark = (">H", 126) if size < 65536 else (">Q", 127)
            length = bytes([size]) if size < 126 else bytes([mark]) + struct.pack(form, size)
            self.wfile.write(bytes([first]) + length + data)
            if first & 15 == 8:
                return

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
