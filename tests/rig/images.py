"""An image made of this machine's own Python and shell, a registry that has it, and podman set up for both."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PYTHON = "/usr/bin/python3"
_LIBRARY = re.compile(r"(/\S+) \(0x")
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
#: what a machine may lack that its root may not give: cgroup v2 alone, and limits above its own
_CONTAINERS = """
[engine]
runtime = "RUNTIME"
static_dir = "FOLDER/images/libpod"
volume_path = "FOLDER/images/volumes"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=20000:20000"]
"""


def podman_settings(folder: Path, registry: str, runtime: str = "runc") -> dict[str, str]:
    """Variables by which podman keeps everything in `folder` and takes `registry` without TLS."""
    texts = {
        "CONTAINERS_CONF": _CONTAINERS.replace("FOLDER", str(folder)).replace("RUNTIME", runtime),
        "CONTAINERS_STORAGE_CONF": '[storage]\ndriver = "vfs"\n'
        f'graphroot = "{folder}/images"\nrunroot = "{folder}/run"\n',
        "CONTAINERS_REGISTRIES_CONF": f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n',
    }
    found = {}
    for name, text in texts.items():
        path = folder / name.lower()
        path.write_text(text)
        found[name] = str(path)
    return found


def podman_of_slurm(folder: Path) -> str:
    """A shell script in the place of podman: by crun, with an image `localhost/job:1` that no registry has.

    Both versions of cgroups beside each other, as some machines have them, are too much for crun.
    """
    variables = podman_settings(folder, "localhost", runtime="crun")
    exports = "\n".join(f"export {name}={path}" for name, path in variables.items())
    other = "[ ! -e /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified"
    script = f'{exports}\nexec unshare --mount sh -c \'{other}; exec /usr/bin/podman "$@"\' podman "$@"\n'
    archive = folder / "root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root_folder(folder / "root"), ".")
    changes = ["--change", "ENV PATH=/usr/bin:/bin", "--change", "ENV OF_THE_IMAGE=yes"]
    words = ["import", "--quiet", *changes, str(archive), "localhost/job:1"]
    subprocess.run(["sh", "-c", script, "podman", *words], check=True, capture_output=True)
    return script


def root_folder(folder: Path) -> Path:
    """A root file system with sh, sleep and python3 with its standard library, and what they are linked to."""
    for name in ("bin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("etc", "tmp", "proc", "dev", "run", "sys"):
        (folder / name).mkdir()
    for program in (PYTHON, "/usr/bin/sh", "/usr/bin/sleep"):
        shutil.copy2(program, folder / program.lstrip("/"))
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in _LIBRARY.findall(linked):
            target = folder / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)
    ask = [PYTHON, "-c", "import os; print(os.path.dirname(os.__file__))"]
    standard = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "idlelib", "tkinter", "ensurepip", "*.a", "config-*"
    )
    shutil.copytree(standard, folder / str(standard).lstrip("/"), ignore=left_out, symlinks=False)
    return folder


class Registry:
    """A registry of one image, `address`/job:1, behind the login `user` with `password`."""

    def __init__(self, root: Path, user: str = "someone", password: str = "se cret") -> None:
        self.login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.blobs: dict[str, tuple[str, bytes]] = {}
        self._manifest(root)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def down(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _manifest(self, root: Path) -> None:
        layers = [
            _packed(root, lambda name: "python" in name),
            _packed(root, lambda name: "python" not in name),
        ]
        config = {
            "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin", "OF_THE_IMAGE=yes"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer)) for layer in layers]},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": _MANIFEST, "config": self._blob(_CONFIG, json.dumps(config).encode()),
            "layers": [self._blob(_LAYER, layer) for layer in layers],
        }  # fmt: skip
        self.manifest = json.dumps(manifest).encode()

    def _blob(self, kind: str, content: bytes) -> dict[str, object]:
        self.blobs[_digest(content)] = (kind, content)
        return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _packed(root: Path, wanted: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if wanted(name):  # type: ignore[operator]
                tar.add(path, name, recursive=False)
    return buffer.getvalue()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != f"Basic {registry.login}":
                self._answer(401, "application/json", b'{"errors": [{"code": "UNAUTHORIZED"}]}')
            elif self.path == "/v2/":
                self._answer(200, "application/json", b"{}")
            elif self.path.startswith("/v2/job/manifests/"):
                self._answer(200, _MANIFEST, registry.manifest)
            elif self.path.rpartition("/")[2] in registry.blobs:
                self._answer(200, *registry.blobs[self.path.rpartition("/")[2]])
            else:
                self._answer(404, "application/json", b'{"errors": [{"code": "NAME_UNKNOWN"}]}')

        do_HEAD = do_GET

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="images"')
            if kind == _MANIFEST:
                self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    return Handler
