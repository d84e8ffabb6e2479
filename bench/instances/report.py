"""The section that a run leaves in docs/benchmarks.md."""

import statistics

from bench import document

COMMANDS = """
    unshare  unshare --mount --uts --ipc --pid chroot OVERLAY sshd      (the host's network, no limits, no user namespace)
    podman   podman run --runtime runc --network=host OVERLAY sshd       (no user namespace)
    Tarn     POST /cluster/create of type tiny                          (own network, limits, user namespace, seccomp)
    people   ssh, scp with one key; unshare and podman on a Debian made by debootstrap, Tarn on its host image
"""
KINDS = {"unshare": "unshare + OpenSSH", "podman": "podman + OpenSSH", "tarn": "Tarn"}


def render(starts: dict, all_running: float, count: int, resident: float, rates: dict) -> str:
    """The whole section."""
    speeds = {name: statistics.median(values) for name, values in rates.items()}
    parts = [
        "## Machines",
        document.circumstances(),
        COMMANDS.strip("\n"),
        "### From nothing to a login, in milliseconds (median, least and most)",
        "Tarn's first words are counted from the accepted request, its first command from before the call.",
        table(starts),
        "### A gibibyte through SSH",
        "\n".join(["| way | MiB/s |", "|-|-|", *(f"| {name} | {speed:.0f} |" for name, speed in speeds.items())]),
        "### Targets",
        targets(starts, all_running, count, resident, speeds),
    ]
    return "\n\n".join(parts)


def table(starts: dict) -> str:
    """The starts by kind."""
    lines = ["| kind | the server's first words | the first command's end |", "|-|-|-|"]
    for kind, name in KINDS.items():
        figures = [" ".join(shown(starts[f"{kind} {what}"])) for what in ("words", "command")]
        lines.append(f"| {name} | {figures[0]} | {figures[1]} |")
    return "\n".join(lines)


def shown(figures: list[float]) -> list[str]:
    """Median, minimum and maximum."""
    median, least, most = (f"{seconds * 1000:.0f}" for seconds in figures)
    return [median, f"({least}–{most})"]


def targets(starts: dict, all_running: float, count: int, resident: float, speeds: dict) -> str:
    """Each target with the result."""
    ratio = lambda what: starts[f"tarn {what}"][0] / starts[f"unshare {what}"][0]  # noqa: E731
    ahead = starts["podman words"][0] / starts["tarn words"][0]
    rows = [
        ("first command at most 1.3 × unshare", f"{ratio('command'):.2f} ×", ratio("command") <= 1.3),
        ("first words at most 2.5 × unshare", f"{ratio('words'):.2f} ×", ratio("words") <= 2.5),
        ("first words ahead of podman", f"{ahead:.1f} × faster", ahead > 1),
        (f"{count} clusters at once all run", f"in {all_running:.1f} s", True),
        ("guest below 15 MiB", f"{resident:.1f} MiB", resident < 15),
    ]
    for way in ("out by cat", "in by scp"):
        speed = speeds[f"{way}, Tarn"] / speeds[f"{way}, OpenSSH"]
        rows.append((f"{way} at least as OpenSSH", f"{speed:.2f} ×", speed >= 1))
    lines = [f"| {what} | {reached} | {'reached' if good else 'NOT REACHED'} |" for what, reached, good in rows]
    return "\n".join(["| target | measured | |", "|-|-|-|", *lines])
