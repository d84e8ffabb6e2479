//! What one TCP stream carries over loopback, from one thread to another: the limit of a large GET.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

const PIECE: usize = 256 << 10;

/// Bytes per second of a stream that is written for `seconds`.
pub fn run(seconds: f64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let began = Instant::now();
    let writer = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("the listener waits");
        let piece = vec![1; PIECE];
        while began.elapsed().as_secs_f64() < seconds {
            stream.write_all(&piece).expect("the reader reads");
        }
    });
    let (mut stream, _) = listener.accept().expect("the writer connects");
    let (mut piece, mut total) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut piece).expect("the writer writes") {
            0 => break,
            length => total += length,
        }
    }
    let rate = total as f64 / began.elapsed().as_secs_f64();
    writer.join().expect("the writer ended well");
    format!(r#"{{"bytes_per_second": {rate:.0}}}"#)
}
