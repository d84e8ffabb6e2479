//! From the stream to the program: its input, the size of its terminal, and signals.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use tarn_link::{Frame, Reader, Result, ToGuest};
use tokio::io::AsyncRead;

use super::terminal;
use crate::process::Pipe;

/// How much input is buffered for a program that does not read it. Up to that, signals and window sizes after it are
/// still delivered.
const MAX_WAITING: usize = 1 << 20;

/// The input of a program.
pub(super) struct Input {
    pid: Pid,
    /// `None` once the client has sent its end.
    pipe: Option<Arc<Pipe>>,
    terminal: Option<Arc<Pipe>>,
    waiting: VecDeque<bytes::Bytes>,
    length: usize,
    has_ended: bool,
}

impl Input {
    pub(super) fn new(pid: Pid, pipe: Arc<Pipe>, terminal: Option<Arc<Pipe>>) -> Self {
        Input { pid, pipe: Some(pipe), terminal, waiting: VecDeque::new(), length: 0, has_ended: false }
    }

    /// Relays input until the stream ends.
    pub(super) async fn relay_input<R: AsyncRead + Unpin>(mut self, mut reader: Reader<R>) -> Result<()> {
        loop {
            tokio::select! {
                frame = reader.read(), if self.length < MAX_WAITING => match frame? {
                    Some(frame) => self.handle_frame(frame)?,
                    None => return Ok(()),
                },
                written = write_first(self.pipe.as_deref(), self.waiting.front()), if self.length > 0 => {
                    self.record_write(written);
                }
            }
            self.close_when_done();
        }
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<()> {
        match frame {
            Frame::Data(data) if self.pipe.is_some() && !self.has_ended && !data.is_empty() => {
                self.length += data.len();
                self.waiting.push_back(data);
            }
            // The program has closed its input, or the client has sent its end.
            Frame::Data(_) | Frame::Stderr(_) => {}
            Frame::Eof => self.has_ended = true,
            Frame::Message(message) => match Frame::parse::<ToGuest>(&message)? {
                ToGuest::Resize(window) => {
                    if let Some(terminal) = &self.terminal {
                        // The terminal may have closed with its program.
                        let _ = terminal::resize_terminal(terminal, window);
                    }
                }
                ToGuest::Signal(name) => {
                    if let Some(signal) = parse_signal(&name) {
                        self.signal_foreground(signal);
                    }
                }
            },
        }
        Ok(())
    }

    fn record_write(&mut self, written: std::io::Result<usize>) {
        match (written, self.waiting.front_mut()) {
            (Ok(length), Some(first)) => {
                drop(first.split_to(length));
                self.length -= length;
                if first.is_empty() {
                    self.waiting.pop_front();
                }
            }
            // The program has closed its input: further data has no reader.
            _ => {
                self.waiting.clear();
                self.length = 0;
                self.pipe = None;
            }
        }
    }

    /// A terminal has no end of input: closing it would end the program, which may still produce output.
    fn close_when_done(&mut self) {
        if self.has_ended && self.length == 0 && self.terminal.is_none() {
            self.pipe = None;
        }
    }

    /// Signals the foreground process group.
    fn signal_foreground(&self, signal: Signal) {
        let foreground = self.terminal.as_ref().and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
        let _ = rustix::process::kill_process_group(foreground.unwrap_or(self.pid), signal);
    }
}

async fn write_first(pipe: Option<&Pipe>, data: Option<&bytes::Bytes>) -> std::io::Result<usize> {
    match (pipe, data) {
        (Some(pipe), Some(data)) => pipe.write(data).await,
        _ => std::future::pending().await,
    }
}

/// Signals by their SSH name, and some more that programs die of or clients send although SSH has no name for them.
const NAMES: [(&str, Signal); 20] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("XCPU", Signal::XCPU),
    ("SYS", Signal::SYS),
];

/// Parses the name of a signal, with or without SIG.
pub(crate) fn parse_signal(name: &str) -> Option<Signal> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

/// Returns the name of a signal; for real-time signals, the number.
pub(crate) fn signal_name(number: i32) -> String {
    match NAMES.iter().find(|(_, signal)| signal.as_raw() == number) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("{number}"),
    }
}
