"""Clocks that tests step: processes read a time of day that is wrong by as much as a file says, from one moment on.

Only the time of day moves. Waits use the monotonic clock and are as long as ever, as on a machine whose clock was set.
(libfaketime breaks the sleeps of Python, which no wrong clock does.) It needs a C compiler.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

#: The words of a process's command line, or of its title, by which a part of the server is recognized.
PARTS = {"postgres": "postgres", "worker": "worker", "beat": "beat", "web": "web"}
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *step;
static int untold;

/* "<word>=<file>,..." in STEPPED_CLOCKS: the first word that is an argument, or ends the program's path */
__attribute__((constructor)) static void begin(void) {
    const char *all = getenv("STEPPED_CLOCKS");
    char line[4096], copy[4096], *saved = NULL;
    untold = all && strlen(all) < sizeof copy;
    if (!untold) return;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    long length = read(fd, line, sizeof line - 1);
    close(fd);
    if (length <= 0) return;
    line[length] = 0;
    for (char *at = line; at < line + length; at++) if (*at == ' ') *at = 0;
    strcpy(copy, all);
    for (char *pair = strtok_r(copy, ",", &saved); pair; pair = strtok_r(NULL, ",", &saved)) {
        char *file = strchr(pair, '=');
        if (!file) continue;
        *file++ = 0;
        int found = !*pair;
        for (char *at = line; !found && at < line + length; at += strlen(at) + 1) {
            char *name = at == line && strrchr(at, '/') ? strrchr(at, '/') + 1 : at;
            found = !strcmp(name, pair);
        }
        if (!found) continue;
        fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        void *map = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (map != MAP_FAILED) step = map, untold = 0;
        return;
    }
}

/* a part that was forked gets its title a moment later */
static void look_again(void) {
    static unsigned calls;
    if (untold && !(++calls & 63)) begin();
}

int clock_gettime(clockid_t id, struct timespec *now) {
    look_again();
    int answer = syscall(SYS_clock_gettime, id, now);
    if (!answer && step && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *step;
    return answer;
}

int gettimeofday(struct timeval *now, void *zone) {
    look_again();
    int answer = syscall(SYS_gettimeofday, now, zone);
    if (!answer && step && now) now->tv_sec += *step;
    return answer;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
"""


class SteppedClocks:
    """A folder with the library and a file for each clock. RuntimeError where there is no C compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("Stepping clocks needs a C compiler: install gcc.")
        self._folder = folder
        source, self.library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source)], check=True
        )

    def of_server(self) -> dict[str, str]:
        """The environment of `up` whose parts have a clock each, by the names in PARTS."""
        return self._environment({word: self._file(part) for part, word in PARTS.items()})

    def of_host(self, name: str) -> dict[str, str]:
        """The environment of a host whose processes have one clock, by the host's name."""
        return self._environment({"": self._file(name)})

    def step(self, name: str, seconds: int) -> None:
        """Let the clock be wrong by so much from now on; 0 sets it right."""
        with self._file(name).open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def _environment(self, files: dict[str, Path]) -> dict[str, str]:
        clocks = ",".join(f"{word}={file}" for word, file in files.items())
        return {"LD_PRELOAD": str(self.library), "STEPPED_CLOCKS": clocks}

    def _file(self, name: str) -> Path:
        path = self._folder / f"{name}.clock"
        if not path.exists():
            path.write_bytes(struct.pack("q", 0))
        return path
