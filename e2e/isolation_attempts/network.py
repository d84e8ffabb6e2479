"""The network."""


def run_command(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is missing") from error
    if done.returncode:
        refused(done.stderr.strip())


def change_the_own_address():
    run_command("ip", "address", "add", "10.99.99.99/32", "dev", "eth0")
    run_command("ip", "address", "del", "10.99.99.99/32", "dev", "eth0")


def change_the_own_hardware_address():
    mine = open("/sys/class/net/eth0/address").read().strip()
    run_command("ip", "link", "set", "eth0", "address", mine)


def load_firewall_rules():
    """Sends an empty batch to the kernel's netlink socket: it changes nothing, and needs the right to change rules."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        edge = lambda kind, flags: struct.pack("<IHHII", 20, kind, flags, 0, 0) + struct.pack(">BBH", 0, 0, 10)  # noqa: E731
        netlink.send(edge(16, 5) + edge(17, 5))
        netlink.settimeout(2)
        try:
            answer = netlink.recv(4096)
        except TimeoutError:
            return
        code = struct.unpack_from("<i", answer, 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code))


def connect(address, port):
    socket.create_connection((address, port), timeout=2).close()


def connect_any(places):
    """Connects to all addresses at once."""
    waiting = []
    for place in places:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(place)
        waiting.append(one)
    end = time.monotonic() + 2
    while waiting and time.monotonic() < end:
        for one in select.select([], waiting, [], 0.1)[1]:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                return
            waiting.remove(one)
    refused("none of them answers")


def reach_another_cluster():
    connect(TARGETS["neighbour"], 22)


def reach_the_gateway():
    connect(TARGETS["gateway"], TARGETS["port"])


def reach_every_address_of_the_host():
    connect_any((address, TARGETS["port"]) for address in TARGETS["addresses"])


def reach_the_metadata_service():
    connect(TARGETS["metadata"], 80)


def reach_a_private_network():
    connect(TARGETS["office"], 80)


def hear_another_cluster():
    """Captures all traffic while the nodes of another cluster send; the instance's own traffic must be captured."""
    heard, own = 0, False
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.setblocking(False)
        ready, end = time.monotonic() + 1.0, time.monotonic() + 30.0
        while time.monotonic() < ready or not own:
            if time.monotonic() > end:
                raise RuntimeError("not even the own traffic is heard")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"tarn-own", (TARGETS["second"]["address"], 9))
            while select.select([everything], [], [], 0.05)[0]:
                frame = everything.recv(2048)
                own = own or b"tarn-own" in frame
                heard += b"tarn-neighbours" in frame
                if heard and own:
                    return
    refused("nothing of it was heard")


def frame(name):
    """The frame of an attempt. It always contains the attempt's name."""
    mine = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
    own, second, gateway = (socket.inet_aton(TARGETS[key]) for key in ("own", "second_address", "gateway"))
    theirs, every = b"\x02\x54" + second, b"\xff" * 6
    other = b"\x02\x54" + gateway
    elsewhere = socket.inet_aton("203.0.113.9")
    note = name.encode()
    return {
        "answer_for_the_gateway": every + mine + struct.pack(">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2) + mine + gateway + theirs + second + note,
        "send_with_another_hardware_address": theirs + other + b"\x08\x00" + datagram(own, second, 9, 9, note),
        "send_with_another_address": theirs + mine + b"\x08\x00" + datagram(elsewhere, second, 9, 9, note),
        "send_into_a_vlan": theirs + mine + b"\x81\x00\x00\x05\x08\x00" + datagram(own, second, 9, 9, note),
        "announce_a_router": b"\x33\x33\0\0\0\x01" + mine + b"\x86\xdd" + announcement(note),
        "answer_as_dhcp": theirs + mine + b"\x08\x00" + datagram(own, second, 67, 68, note),
        "send_an_unknown_protocol": theirs + mine + b"\x88\xb5" + note.ljust(60, b"\0"),
        "end": theirs + mine + b"\x08\x00" + datagram(own, second, 9, 9, note),
    }[name]


def datagram(source, target, source_port, target_port, content):
    udp = struct.pack(">HHHH", source_port, target_port, 8 + len(content), 0) + content
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, source, target)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + head[12:] + udp


def announcement(content):
    body = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + content
    source, target = b"\xfe\x80" + b"\0" * 13 + b"\x01", b"\xff\x02" + b"\0" * 13 + b"\x01"
    return struct.pack(">IHBB", 0x60000000, len(body), 58, 255) + source + target + body


def send_frames(order):
    """Sends the requested frames and then a valid one."""
    order = json.loads(order)
    TARGETS.update(order["targets"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        for name in order["names"]:
            raw.send(frame(name))
        raw.send(frame("end"))


def listen_for_frames():
    """Prints which attempts arrived, by the names in their frames, until the valid frame arrives."""
    names = [name.encode() for name in frame.__code__.co_consts for name in (name if isinstance(name, tuple) else (name,))
             if isinstance(name, str) and name.isidentifier()]  # fmt: skip
    seen = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.bind(("eth0", 3))
        print("listening", flush=True)
        while True:
            if not select.select([everything], [], [], 60)[0]:
                sys.exit("the valid frame did not arrive")
            content = everything.recv(4096)
            if content.endswith(b"end"):
                break
            seen += [name.decode() for name in names if name in content and name != b"end"]
    print(json.dumps(seen), flush=True)
