//! What listens inside of a real instance for the engine: reached from there, carried over the control stream, and gone with it.

use tarn_driver::{Driver, InstanceSpec};
use tarn_link::opening::{self, Opened};
use tarn_link::{Answer, Endpoint, FromGuest, Purpose, Stream, relay};
use tarn_model::ids::InstanceId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::local::machine::{Machine, PATIENCE, on_a_machine};

/// The port inside; each instance has all ports for itself.
const PORT: u16 = 7071;

/// How much is carried: many frames, and more than all buffers on the way hold.
const LENGTH: usize = 64 << 20;

/// Asks for so many bytes and says how many came and whether they are the right ones.
const FETCH: &str = r#"python3 -c "
import socket
with socket.create_connection(('127.0.0.1', 7071), timeout=20) as c:
    c.sendall(b'more'); c.shutdown(socket.SHUT_WR)
    data = b''.join(iter(lambda: c.recv(1 << 20), b''))
print(len(data), data == bytes(range(256)) * (len(data) >> 8))
""#;

/// Takes the port as soon as it is free, and keeps it.
const HOLD: &str = r#"nohup python3 -c "
import socket, time
while True:
    try:
        listener = socket.create_server(('127.0.0.1', 7071))
        break
    except OSError:
        time.sleep(0.02)
open('held', 'w').close()
time.sleep(1000)
" > /dev/null 2>&1 & until [ -e held ]; do sleep 0.02; done"#;

async fn ask(machine: &Machine, id: &InstanceId, purpose: Purpose) -> tarn_link::Result<Opened<Box<dyn Stream>>> {
    let stream = machine.driver.connect(id).await.unwrap();
    let asked = tokio::time::timeout(PATIENCE, opening::open(stream, purpose)).await.expect("the guest answers");
    asked.map(|(answer, opened)| {
        assert!(matches!(answer, Answer::Ready | Answer::Listening(_)), "{answer:?}");
        opened
    })
}

fn listen() -> Purpose {
    Purpose::Listen(Endpoint::Tcp { host: "127.0.0.1".into(), port: PORT })
}

/// Carries the next connection from inside to a listener of the test, which answers it with what was asked for.
async fn carry_one(machine: &Machine, id: &InstanceId, door: &mut Opened<Box<dyn Stream>>) {
    let Some(FromGuest::Incoming { id: number, .. }) = door.0.read_message().await.unwrap() else { panic!() };
    let (mut reader, mut writer) = ask(machine, id, Purpose::Take { id: number }).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let (mut from, mut to) = near.into_split();
    let answering = async {
        let mut asked = String::new();
        far.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "more");
        let data: Vec<u8> = (0..=255).cycle().take(LENGTH).collect();
        far.write_all(&data).await.unwrap();
        far.shutdown().await.unwrap();
    };
    let questions = relay::link_to_connection(&mut reader, &mut to, |_| ());
    let answers = relay::connection_to_link(&mut from, &mut writer, |_| ());
    let (asked, answered, ()) = tokio::join!(questions, answers, answering);
    asked.and(answered).unwrap();
}

#[test]
fn what_the_engine_listens_for_is_reached_from_inside_only() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        let address = machine.start(&spec).await.private_ip;
        let neighbour = InstanceSpec { id: InstanceId::fresh(&machine.ids), node: 1, ..spec.clone() };
        machine.start(&neighbour).await;
        let mut door = ask(machine, &spec.id, listen()).await.unwrap();
        let carried = async { tokio::join!(machine.run(&spec.id, FETCH), carry_one(machine, &spec.id, &mut door)).0 };
        assert_eq!(carried.await, format!("{LENGTH} True\n"));
        let reach =
            |host: &str| format!("python3 -c \"import socket; socket.create_connection(('{host}', {PORT}), 3)\"");
        for host in ["127.0.0.1", &address] {
            let (code, said) = machine.attempt(&neighbour.id, &reach(host)).await;
            assert_ne!(code, 0, "{host} in the neighbour: {said}");
        }
        let here = reach("127.0.0.1");
        let (_, said) = tokio::join!(door.0.read_message::<FromGuest>(), machine.run(&spec.id, &here));
        assert_eq!(said, "");
    });
}

#[test]
fn a_listener_ends_with_its_stream_and_leaves_programs_alone() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        machine.start(&spec).await;
        let door = ask(machine, &spec.id, listen()).await.unwrap();
        assert!(ask(machine, &spec.id, listen()).await.is_err(), "a port is given out once");
        drop(door);
        // Soon the port is free for a program, which the next one who asks for it does not push away.
        machine.run(&spec.id, HOLD).await;
        let refused = ask(machine, &spec.id, listen()).await.err().expect("the program has the port");
        assert!(refused.to_string().contains("cannot listen"), "{refused}");
        machine.run(&spec.id, "pkill python3").await;
        let again = async {
            while ask(machine, &spec.id, listen()).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("the port is given out when it is free");
    });
}
