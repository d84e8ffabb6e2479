"""Sets the clock that a program sees: a library that is loaded before the C library adds the seconds in a file to the
time of day. The count since the boot stays, as on a real host whose clock is set."""

import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, now);
    const char *name = getenv("CLOCK_OFFSET_FILE");
    FILE *file = id == CLOCK_REALTIME && name ? fopen(name, "re") : NULL;
    if (file) {
        long seconds = 0;
        if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
        fclose(file);
    }
    return done;
}
"""


class SettableClock:
    """The clock of the programs that run in `environment`."""

    def __init__(self, directory: Path):
        library, source = directory / "clock.so", directory / "clock.c"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.file = directory / "clock-offset"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self.file)}

    def set(self, seconds: int):
        """Sets the clock so many seconds ahead of the real one."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.rename(self.file)
