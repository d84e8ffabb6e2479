"""Any image: clusters that the unchanged `tp` starts from images of a real registry, what a person finds inside, and what he is
can do there. The images are made here: a Debian, a handful of programs around a plain shell, one program without a shell, and some
that mean harm."""

import io
import os
import random
import re
import subprocess
import tarfile

import pytest

import footprint
from jobs import JOB_ID, Jobs, config
from machines import needs_root
from registry import HeldBack, Layer, Registry, debian, needs_registry, plain_shell
from support import ENVIRONMENT, eventually, free_port

pytestmark = [needs_root, needs_registry]
STORAGE = """
[storage]
detach_grace_seconds = 1
overcommit = 10.0
"""
STORAGE_ID = re.compile(r"\bs-[0-9a-hjkmnp-tv-z]{12}\b")
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    char place[4096];
    if (count > 1 && strcmp(words[1], "fail") == 0) return 7;
    if (count > 3 && strcmp(words[1], "write") == 0) {
        FILE *file = fopen(words[2], "w");
        return !file || fputs(words[3], file) < 0 || fclose(file);
    }
    if (count > 2 && strcmp(words[1], "read") == 0) {
        FILE *file = fopen(words[2], "r");
        return !file || !fgets(place, sizeof place, file) || puts(place) < 0;
    }
    printf("uid=%d gid=%d place=%s word=%s", getuid(), getgid(), getcwd(place, sizeof place), getenv("WORD"));
    for (int each = 1; each < count; each++) printf(" [%s]", words[each]);
    printf("\n");
    return 0;
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A cloud whose machines are real; the client's fixture uses it in the fake one's place."""
    with Jobs(tmp_path_factory.mktemp("images"), settings=STORAGE) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry without a login."""
    with Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> bytes:
    """A program that needs nothing but the kernel."""
    place = tmp_path_factory.mktemp("program")
    (place / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-static", "-O1", "-o", str(place / "program"), str(place / "program.c")], check=True)
    return (place / "program").read_bytes()


@pytest.fixture
def create(tp, server):
    """Creates a cluster from an image with the stock client; answers its info."""

    def run(name: str, image: str) -> dict:
        tp("cluster", "create", "1xCPU", "-i", server.identity.with_suffix(".pub"), "--name", name, "--container", image, "--wait")
        return server.info(name)

    return run


@pytest.fixture
def push(tp, server, tmp_path):
    """Pushes a job with the stock client; answers its end."""

    def run(cluster: str, *commands: str, status="completed", **keys) -> dict:
        project = tmp_path / f"project-of-{cluster}"
        project.mkdir()
        (project / "data.txt").write_text("given\n")
        (project / "job.tp.toml").write_text(config(*commands, venv=False, **keys))
        [job] = set(JOB_ID.findall(tp("job", "push", "job.tp.toml", cluster, where=project, loud=True).text))
        return server.wait(job, status=status)

    return run


@pytest.fixture
def volume(tp, server):
    """Creates a volume and attaches it with the stock client; answers its id. Who has it detached may remove it."""
    made = []

    def run(cluster: dict, name: str) -> str:
        made.append(STORAGE_ID.search(tp("storage", "create", 1, "--name", name, "--wait").text)[0])
        tp("cluster", "attach", cluster["id"], made[-1], "--wait")
        return made[-1]

    yield run
    for each in made:
        server.finish(server.call("DELETE", f"/storage/{each}", expect=202).json()["request_id"])


def with_a_user(root: bytes) -> bytes:
    """A layer over a Debian: a user, his home and a directory to work in, and a program on a path of its own."""
    with tarfile.open(fileobj=io.BytesIO(root)) as tar:
        text = {name: tar.extractfile(f"./etc/{name}").read() for name in ("passwd", "group")}
    layer = Layer()
    layer.add("etc/passwd", text["passwd"] + b"app:x:1234:1234::/home/app:/usr/sbin/nologin\n")
    layer.add("etc/group", text["group"] + b"app:x:1234:\n")
    layer.directory("home").directory("home/app", uid=1234, gid=1234)
    layer.directory("srv").directory("srv/work", uid=1234, gid=1234)
    layer.directory("opt").directory("opt/tools")
    return layer.add("opt/tools/greet", b"#!/bin/sh\necho $GREETING from $0\n", mode=0o755).bytes()


def test_a_debian_with_a_user_an_environment_and_a_directory(tp, server, registry, create, push, volume, tmp_path):
    root = debian()
    image = registry.push(
        "org/debian", root, with_a_user(root), tag="12", User="app", WorkingDir="/srv/work",
        Env=["GREETING=hello", "PATH=/opt/tools:/usr/local/bin:/usr/bin:/bin"],
    )  # fmt: skip
    cluster = create("debian", image)
    assert cluster["container"] == image and cluster["image"].startswith(f"{registry.host}/org/debian@sha256:")
    assert cluster["image"] in tp("cluster", "info", "debian").text
    inside = lambda *command, **more: server.ssh("debian", *command, **more).out.strip()  # noqa: E731

    # What the image says about its programs is what people find.
    assert inside("whoami") == "app" and inside("id -u") == "1234" and inside("echo $HOME:$USER") == "/home/app:app"
    assert inside("pwd") == "/srv/work" and inside("greet") == "hello from /opt/tools/greet"
    login = server.ssh("debian", options=["-tt"], answer="stty -echo; greet; pwd; whoami; exit 3\n", code=3).out
    assert "hello from /opt/tools/greet" in login and "/srv/work" in login and "app" in login
    assert inside("cat /etc/debian_version") and inside("hostname") == cluster["instances"][0]["name"]
    assert inside("sudo id -u") == "0" and inside("sudo -u root whoami") == "root"
    assert inside("stat -c %U:%a /var/lib/tarn") == "root:700" and inside("stat -c %a /tmp") == "1777"
    assert inside("sudo touch /etc/mine && stat -c %U /etc/mine /srv/work").split() == ["root", "app"]

    # Files come and go, to home unless somebody says otherwise.
    (tmp_path / "file").write_text("carried")
    address = "debian@127.0.0.1"
    run = lambda *line, **more: subprocess.run(line, env=ENVIRONMENT, check=True, timeout=60, **more)  # noqa: E731
    run("scp", "-q", *server.options(), str(tmp_path / "file"), f"{address}:by-scp")
    run("sftp", "-q", "-b", "-", *server.options(), address, input=f"put {tmp_path / 'file'} by-sftp\n", text=True, capture_output=True)
    assert inside("cat /home/app/by-scp /home/app/by-sftp") == "carriedcarried"

    # A job of the stock client, in a directory of its own, with the image's environment.
    job = push("debian", "cat data.txt > kept.txt", "greet >> kept.txt; whoami >> kept.txt", outputs=["kept.txt"])
    there = tmp_path / "there"
    there.mkdir()
    tp("job", "pull", job["id"], where=there, loud=True)
    [kept] = there.rglob("kept.txt")
    assert kept.read_text() == "given\nhello from /opt/tools/greet\napp\n"

    # A volume, written to by its user, and a restart that keeps the disk.
    data = volume(cluster, "data")
    inside("echo on the volume > /home/app/data/file && echo on the disk > /srv/work/file && sync")
    server.finish(server.call("POST", f"/cluster/restart/{cluster['id']}", expect=202).json()["request_id"])
    assert inside("cat file /home/app/data/file") == "on the disk\non the volume"
    assert inside("sudo id -u") == "0" and server.info("debian")["image"] == cluster["image"]
    tp("cluster", "detach", cluster["id"], data, "--wait")
    assert inside("ls /home/app/data/ 2>/dev/null || echo gone") == "gone"
    server.destroy(cluster["id"])


def test_a_handful_of_programs_around_a_plain_shell(tp, server, registry, create, push, volume):
    layer, empty = plain_shell(), Layer().directory("work").bytes()
    # The same empty layer twice, as whoever names a directory to work in twice has it.
    cluster = create("plain", registry.push("org/plain", empty, layer, empty, WorkingDir="/work", Env=["PATH=/bin", "WORD=given"]))
    inside = lambda command: server.ssh("plain", command).out.strip()  # noqa: E731
    assert inside("echo $WORD $(id -u) $HOME; pwd") == "given 0 /root\n/work" and inside("echo $0").endswith("sh")
    data = volume(cluster, "plain-data")
    inside("echo on the volume > /root/plain-data/file")
    # Its job finds the volume as sessions do, and no other shell than the plain one.
    ended = push("plain", "cat data.txt /root/plain-data/file", "echo $WORD > /root/plain-data/by-job", "! ls /bin/bash")
    log = server.log_of(ended["id"])
    assert b"given" in log and b"on the volume" in log, log
    assert inside("cat /root/plain-data/by-job") == "given"
    tp("cluster", "detach", cluster["id"], data, "--wait")
    server.destroy("plain")


def test_one_program_without_a_shell(tp, server, registry, create, push, volume, program):
    layer = Layer().directory("bin").add("bin/say", program, mode=0o755).directory("work")
    config = {"User": "4711:7", "WorkingDir": "/work", "Env": ["PATH=/bin", "WORD=given"]}
    cluster = create("static", registry.push("static", layer.bytes(), **config))
    said = server.ssh("static", "say 'two words' $HOME").out
    assert said == "uid=4711 gid=7 place=/work word=given [two words] [$HOME]\n"
    assert server.ssh("static", "/bin/say").out.startswith("uid=4711")
    assert server.ssh("static", "say", "fail", code=7)
    assert "no-such: no such program" in server.ssh("static", "no-such", code=127).errors
    for options in ([], ["-tt"]):
        login = server.ssh("static", options=options, code=127)
        assert "this image has no shell" in login.out + login.errors
        assert "ssh HOST /path/to/program" in login.out + login.errors
    # Files and sudo come with the guest.
    sftp = ["sftp", "-q", "-b", "-", *server.options(), "static@127.0.0.1"]
    listed = subprocess.run(sftp, input="ls -1 /bin\n", env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert "/bin/say" in listed.stdout, listed
    assert server.ssh("static", "sudo /bin/say").out.startswith("uid=0 gid=0")
    # A job needs a shell, and its owner is told so.
    ended = push("static", "say", status=None)
    assert ended["status"] in ("failed", "error") and "the image has no shell" in str(ended), ended
    # A volume is at home, which is made for a user whom nobody wrote down.
    data = volume(cluster, "static-data")
    server.ssh("static", "say write /home/4711/static-data/file 'on the volume'")
    assert server.ssh("static", "say read /home/4711/static-data/file").out == "on the volume\n"
    tp("cluster", "detach", cluster["id"], data, "--wait")
    assert server.ssh("static", "say read /home/4711/static-data/file", code=1)
    # It starts again, too.
    server.finish(server.call("POST", "/cluster/restart/static", expect=202).json()["request_id"])
    assert server.ssh("static", "say").out.startswith("uid=4711")
    server.destroy("static")


def test_odd_images_come_up(server, registry, create, program):
    passwd = b"evil:x:4294967295:4294967295::/:/bin/sh\nminus:x:-1:-1::/:/\n" + b"x" * 5_000_000
    odd = Layer().directory("bin", mode=0o700).add("bin/say", program, mode=0o4755)
    odd.link("etc", "usr/etc").directory("usr").directory("usr/etc").add("usr/etc/passwd", passwd)
    odd.link("var", "nowhere").add("tmp", b"a file").link("home", "/home")
    odd.add("null", kind=tarfile.CHRTYPE, device=(1, 3)).add("pipe", kind=tarfile.FIFOTYPE).add("new\nline", b"")
    create("odd", registry.push("odd", odd.bytes(), User="4711", Env=["PATH=/usr/local/bin:/bin", "WORD=", "=x", "A B=c"]))
    assert server.ssh("odd", "sudo /bin/say").out.startswith("uid=0")
    refused = server.ssh("odd", "say", code=None)
    assert refused.code == 255 and "Permission denied" in refused.errors, f"nobody may look into /bin: {refused}"
    server.destroy("odd")


def test_a_user_whom_the_image_does_not_have_is_told(server, registry, program):
    layer = Layer().directory("etc").add("etc/passwd", b"minus:x:-1:-1::/:/\n").add("say", program, mode=0o755)
    for user in ("ghost", "minus"):
        body = {"instance_type": "1xCPU", "tp_cluster_name": user, "container": registry.push(user, layer.bytes(), User=user)}
        accepted = server.call("POST", "/cluster/create", json=body, expect=202).json()
        said = server.finish(accepted["request_id"], status="FAILED")["message"]
        assert f"the image has no user {user}, which its USER names" in said, said
        server.destroy(accepted["cluster_id"])


@pytest.mark.alone
def test_an_image_that_means_harm_harms_nothing(server, registry, program, tmp_path):
    before, mark = footprint.take(), f"escaped-{free_port()}"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("untouched")
    up = "../" * 20
    out, hides = "leads out of the image", "it has a whiteout without a name"
    harmful = {
        "dots": (Layer().add(f"{up}tmp/{mark}", b"x"), out),
        "absolute": (Layer().add(f"/tmp/{mark}", b"x"), None),
        "through-a-link": (Layer().link("out", str(outside)).add(f"out/{mark}", b"x").add("out/kept", b"overwritten"), "not a directory in it"),
        "hard-link": (Layer().add("stolen", kind=tarfile.LNKTYPE, to=str(outside / "kept")), "a link to a file that it does not have"),
        "whiteout": (Layer().add(f"{up}{outside}/.wh.kept"), out),
        "whiteout-of-above": (Layer().add(".wh..."), hides),
        "whiteout-of-itself": (Layer().add("a/.wh.."), hides),
        "hides-all": (Layer().add("a/.wh..wh..opq"), None),
        "device": (Layer().add("disk", kind=tarfile.BLKTYPE, mode=0o666, device=(8, 0)), None),
    }
    for name, (layer, words) in harmful.items():
        layer.add("say", program, mode=0o755)
        body = {"instance_type": "1xCPU", "tp_cluster_name": name, "container": registry.push(name, layer.bytes())}
        body["public_keys"] = [server.identity.with_suffix(".pub").read_text()]
        accepted = server.call("POST", "/cluster/create", json=body, expect=202).json()
        if words:
            said = server.finish(accepted["request_id"], status="FAILED")["message"]
            assert words in said, f"{name}: {said}"
        else:
            server.finish(accepted["request_id"])
            assert server.ssh(name, "/say").out.startswith("uid=0"), name
        server.destroy(accepted["cluster_id"])
        assert [file.name for file in outside.iterdir()] == ["kept"], name
        assert (outside / "kept").read_text() == "untouched", name
        assert not os.path.lexists(f"/tmp/{mark}"), name
    assert not footprint.difference(before, footprint.take()).keys() - {"namespaces"}


def test_how_far_a_pull_is_can_be_seen(server, registry, program):
    noise = random.Random(8).randbytes(6_000_000)
    with HeldBack(registry, 3_000_000) as slow:
        name = registry.push("slow", Layer().add("noise", noise).add("say", program, mode=0o755).bytes()).split("/", 1)[1]
        body = {"instance_type": "1xCPU", "tp_cluster_name": "slow", "container": f"{slow.host}/{name}"}
        accepted = server.call("POST", "/cluster/create", json=body, expect=202).json()

        def told():
            request = server.call("GET", f"/request/info/{accepted['request_id']}", expect=200).json()
            assert request["status"] in ("PENDING", "PROCESSING"), request
            cluster = server.info("slow")["explanation"] or ""
            said = request["message"] or ""
            return said if "(pull)" in said and " MB" in said and " MB" in cluster else None

        assert f"step 2 of 5 (pull): pulls {slow.host}/slow" in eventually(told, seconds=60, what="the progress of a pull")
        slow.go_on.set()
        server.finish(accepted["request_id"])
        server.destroy("slow")
