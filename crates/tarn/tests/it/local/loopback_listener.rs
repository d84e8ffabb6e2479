//! Listeners in a real instance for the engine: reached from inside, carried over the control stream, and closed with
//! it.

use tarn_driver::{Driver, InstanceSpec};
use tarn_link::opening::{self, Opened};
use tarn_link::{Endpoint, FromGuest, Purpose, Reply, Stream, relay};
use tarn_model::ids::InstanceId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::local::test_host::{TIMEOUT, TestHost, with_test_host};

/// The port in the instance; each instance has all ports for itself.
const PORT: u16 = 7071;

/// How much is carried: many frames, and more than all buffers on the way hold.
const LENGTH: usize = 64 << 20;

/// Fetches so many bytes, and prints how many arrived and whether they are correct.
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

async fn open_to_guest(
    host: &TestHost,
    id: &InstanceId,
    purpose: Purpose,
) -> tarn_link::Result<Opened<Box<dyn Stream>>> {
    let stream = host.driver.connect(id).await.unwrap();
    let asked = tokio::time::timeout(TIMEOUT, opening::open(stream, purpose)).await.expect("the guest answers");
    asked.map(|(answer, opened)| {
        assert!(matches!(answer, Reply::Ready | Reply::Listening(_)), "{answer:?}");
        opened
    })
}

fn listen_purpose() -> Purpose {
    Purpose::Listen(Endpoint::Tcp { host: "127.0.0.1".into(), port: PORT })
}

/// Carries the next connection from the instance to a listener of the test, which sends what was requested.
async fn carry_connection(host: &TestHost, id: &InstanceId, listener: &mut Opened<Box<dyn Stream>>) {
    let Some(FromGuest::Incoming { id: number, .. }) = listener.0.read_message().await.unwrap() else { panic!() };
    let (mut reader, mut writer) = open_to_guest(host, id, Purpose::Take { id: number }).await.unwrap();
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

/// A listener for the engine is reachable only from inside the instance.
#[test]
fn listener_is_reachable_from_inside_only() {
    with_test_host(async |host| {
        let spec = host.spec();
        let address = host.start(&spec).await.private_ip;
        let other = InstanceSpec { id: InstanceId::fresh(&host.ids), node: 1, ..spec.clone() };
        host.start(&other).await;
        let mut listener = open_to_guest(host, &spec.id, listen_purpose()).await.unwrap();
        let carried =
            async { tokio::join!(host.run(&spec.id, FETCH), carry_connection(host, &spec.id, &mut listener)).0 };
        assert_eq!(carried.await, format!("{LENGTH} True\n"));
        let reach =
            |target: &str| format!("python3 -c \"import socket; socket.create_connection(('{target}', {PORT}), 3)\"");
        for target in ["127.0.0.1", &address] {
            let (code, output) = host.attempt(&other.id, &reach(target)).await;
            assert_ne!(code, 0, "{target} from the other node: {output}");
        }
        let here = reach("127.0.0.1");
        let (_, output) = tokio::join!(listener.0.read_message::<FromGuest>(), host.run(&spec.id, &here));
        assert_eq!(output, "");
    });
}

/// A listener ends with its stream and does not displace programs.
#[test]
fn listener_ends_with_stream() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        let listener = open_to_guest(host, &spec.id, listen_purpose()).await.unwrap();
        assert!(open_to_guest(host, &spec.id, listen_purpose()).await.is_err(), "a port is given out once");
        drop(listener);
        // Soon the port is free for a program, which the next listener does not displace.
        host.run(&spec.id, HOLD).await;
        let refused = open_to_guest(host, &spec.id, listen_purpose()).await.err().expect("the program has the port");
        assert!(refused.to_string().contains("cannot listen"), "{refused}");
        host.run(&spec.id, "pkill python3").await;
        let again = async {
            while open_to_guest(host, &spec.id, listen_purpose()).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, again).await.expect("the port is given out when it is free");
    });
}
