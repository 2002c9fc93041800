"""One web process: uvicorn on sockets that `up` has opened and hands down as file descriptors."""

import argparse
import asyncio
import socket
from types import FrameType

import uvicorn

from webui.connections import Http, WebSocket

GRACE_SECONDS = 3  # long polls and sockets are cut then; clients come back with their cursors


class Server(uvicorn.Server):
    """It wakes once a second, to renew the Date header; uvicorn's own also looks ten times whether it shall end."""

    _loop: asyncio.AbstractEventLoop | None = None  # until it has started

    async def main_loop(self) -> None:
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        counter = 0
        while not await self.on_tick(counter):
            counter += 10  # uvicorn's tenths of a second: it renews the header at each ten
            try:
                async with asyncio.timeout(1):
                    await self._told.wait()
            except TimeoutError:
                pass

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)


def main() -> None:
    parser = argparse.ArgumentParser(prog="embedded.serve")
    parser.add_argument("--fd", type=int, action="append", required=True, help="a listening socket to serve")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    config = uvicorn.Config(
        "webui.asgi:application",
        http=Http,
        ws=WebSocket,
        lifespan="off",
        access_log=False,
        log_level="info",
        server_header=False,
        proxy_headers=False,  # nobody stands in front of us; tunnels come from loopback and must not be believed
        ws_max_size=16
        * 1024
        * 1024,  # of a notebook's; what the console's own take is bounded in webui.live.routing
        ws_max_queue=4,
        ws_per_message_deflate=False,  # lines go to many viewers at once: compressing for each costs more than it saves
        ssl_certfile=options.cert,
        ssl_keyfile=options.key,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=60,
    )
    Server(config).run(sockets=[socket.socket(fileno=number) for number in options.fd])


if __name__ == "__main__":
    main()
