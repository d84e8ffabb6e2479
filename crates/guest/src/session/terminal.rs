//! Terminals of sessions: a pseudo-terminal, its size, and its modes by their SSH opcodes (RFC 4254, section 8).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Uid};
use rustix::pty::OpenptFlags;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex as Code, Termios, Winsize,
};
use tarn_link::{Pty, Window};

use crate::users::Account;

/// A new terminal.
pub(super) struct Terminal {
    pub(super) guest_side: OwnedFd,
    pub(super) program_side: OwnedFd,
    /// The path of the program's side.
    pub(super) path: String,
}

/// Opens a terminal that belongs to the user. The program's side is opened through the guest's side, not by its path.
pub(super) fn open_terminal(account: &Account, tty_group: Option<u32>, pty: &Pty) -> io::Result<Terminal> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let guest_side = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&guest_side)?;
    rustix::pty::unlockpt(&guest_side)?;
    let program_side = rustix::pty::ioctl_tiocgptpeer(&guest_side, flags)?;
    let path = rustix::pty::ptsname(&guest_side, Vec::new())?.to_string_lossy().into_owned();
    if rustix::process::geteuid().is_root() {
        let group = tty_group.unwrap_or(account.gid);
        rustix::fs::fchown(&program_side, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(group)))?;
        rustix::fs::fchmod(&program_side, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    }
    let mut modes = rustix::termios::tcgetattr(&program_side)?;
    pty.modes.iter().for_each(|(opcode, value)| set_mode(&mut modes, *opcode, *value));
    rustix::termios::tcsetattr(&program_side, OptionalActions::Now, &modes)?;
    resize_terminal(&guest_side, pty.window)?;
    Ok(Terminal { guest_side, program_side, path })
}

/// Resizes a terminal; the kernel notifies its programs.
pub(super) fn resize_terminal(terminal: impl AsFd, window: Window) -> io::Result<()> {
    let size =
        Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: window.width, ws_ypixel: window.height };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// Sets one mode. Modes that Linux does not have are ignored, as the standard requires.
fn set_mode(modes: &mut Termios, opcode: u8, value: u32) {
    match opcode {
        1..=18 => {
            if let Some(code) = special_code(opcode) {
                // 255 disables the key, which Linux encodes as 0.
                modes.special_codes[code] = u8::try_from(value).ok().filter(|key| *key != 255).unwrap_or(0);
            }
        }
        30..=42 => modes.input_modes.set(input_mode(opcode), value != 0),
        50..=62 => modes.local_modes.set(local_mode(opcode), value != 0),
        70..=75 => modes.output_modes.set(output_mode(opcode), value != 0),
        90..=93 if opcode <= 91 && value == 0 => {}
        90 | 91 => {
            modes.control_modes.remove(ControlModes::CSIZE);
            modes.control_modes.insert(if opcode == 90 { ControlModes::CS7 } else { ControlModes::CS8 });
        }
        92 => modes.control_modes.set(ControlModes::PARENB, value != 0),
        93 => modes.control_modes.set(ControlModes::PARODD, value != 0),
        // A pseudo-terminal has no speed, but programs show the setting; an invalid one is ignored.
        128 => drop(modes.set_input_speed(value)),
        129 => drop(modes.set_output_speed(value)),
        _ => {}
    }
}

fn special_code(opcode: u8) -> Option<Code> {
    Some(match opcode {
        1 => Code::VINTR,
        2 => Code::VQUIT,
        3 => Code::VERASE,
        4 => Code::VKILL,
        5 => Code::VEOF,
        6 => Code::VEOL,
        7 => Code::VEOL2,
        8 => Code::VSTART,
        9 => Code::VSTOP,
        10 => Code::VSUSP,
        12 => Code::VREPRINT,
        13 => Code::VWERASE,
        14 => Code::VLNEXT,
        16 => Code::VSWTC,
        18 => Code::VDISCARD,
        _ => return None,
    })
}

fn input_mode(opcode: u8) -> InputModes {
    match opcode {
        30 => InputModes::IGNPAR,
        31 => InputModes::PARMRK,
        32 => InputModes::INPCK,
        33 => InputModes::ISTRIP,
        34 => InputModes::INLCR,
        35 => InputModes::IGNCR,
        36 => InputModes::ICRNL,
        37 => InputModes::IUCLC,
        38 => InputModes::IXON,
        39 => InputModes::IXANY,
        40 => InputModes::IXOFF,
        41 => InputModes::IMAXBEL,
        42 => InputModes::IUTF8,
        _ => InputModes::empty(),
    }
}

fn local_mode(opcode: u8) -> LocalModes {
    match opcode {
        50 => LocalModes::ISIG,
        51 => LocalModes::ICANON,
        52 => LocalModes::XCASE,
        53 => LocalModes::ECHO,
        54 => LocalModes::ECHOE,
        55 => LocalModes::ECHOK,
        56 => LocalModes::ECHONL,
        57 => LocalModes::NOFLSH,
        58 => LocalModes::TOSTOP,
        59 => LocalModes::IEXTEN,
        60 => LocalModes::ECHOCTL,
        61 => LocalModes::ECHOKE,
        62 => LocalModes::PENDIN,
        _ => LocalModes::empty(),
    }
}

fn output_mode(opcode: u8) -> OutputModes {
    match opcode {
        70 => OutputModes::OPOST,
        71 => OutputModes::OLCUC,
        72 => OutputModes::ONLCR,
        73 => OutputModes::OCRNL,
        74 => OutputModes::ONOCR,
        75 => OutputModes::ONLRET,
        _ => OutputModes::empty(),
    }
}
