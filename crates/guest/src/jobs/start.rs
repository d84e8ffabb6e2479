//! Starting an attempt: what must be on disk first, and the supervisor.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::pipe::PipeFlags;
use tarn_link::{Image, JobOrder};

use super::attempts::{Attempt, Source, Stage};
use super::conversation::Conversation;
use super::failures::Failure;
use super::forget::remove_path;
use super::helpers::Child;
use super::keeper::Keeper;
use super::places::{DIRECTORIES, HOSTS, LOG, ORDER, Place, SCRIPT};
use super::registry::Job;
use super::supervisor::INSTANCE;
use super::{processes, script};
use crate::accounts::Account;
use crate::configuration::files::{Owner, directory_below, open_directory, replace};
use crate::service::Guest;

/// How much output may wait in the pipe where the kernel allows it.
const PIPE_SIZE: usize = 1 << 20;

/// Makes the guest's own directory of a job.
pub(super) fn make_state(place: &Place) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(place.state())
}

/// Makes the directory in which the commands run, without following a link of the user's.
pub(super) fn make_working(place: &Place, account: &Account) -> io::Result<OwnedFd> {
    let owner = Owner { account: Some(account), mode: Mode::from_raw_mode(0o755) };
    let directories = directory_below(open_directory(&account.home)?, DIRECTORIES, owner)?;
    directory_below(directories, place.job(), owner)
}

/// Refuses to begin anything while the instance ends.
pub(super) fn refuse_at_the_end(guest: &Guest) -> Result<(), Failure> {
    if guest.jobs.instance_ends() { Err(Failure::passing("the node is being stopped")) } else { Ok(()) }
}

/// Starts an attempt whose files are in place. After a failure nothing of the attempt is left.
pub(super) async fn start(
    guest: &Arc<Guest>,
    place: &Place,
    job: &Arc<Job>,
    order: &JobOrder,
) -> Result<Arc<Attempt>, Failure> {
    let failed = |e: io::Error| Failure::during("the job could not be started", &e);
    let account = guest.account().map_err(failed)?;
    let directory = place.attempt(order.attempt);
    // What is there and not known is forgotten.
    remove_path(guest, &directory).await.map_err(failed)?;
    // From here on nothing is waited for until the attempt is known, so that it is told if the instance ends after this.
    refuse_at_the_end(guest)?;
    let begun = write(place, &account, order).and_then(|()| begin(guest, place, &account, job, order.attempt));
    if begun.is_err() {
        // What cannot be removed now has an order and no outcome, and counts as lost later on.
        let _ = remove_path(guest, &directory).await;
    }
    begun.map_err(failed)
}

/// Writes everything down that the supervisor and the commands need.
fn write(place: &Place, account: &Account, order: &JobOrder) -> io::Result<()> {
    make_working(place, account)?;
    let shown = place.shown_of_all();
    DirBuilder::new().recursive(true).mode(0o755).create(&shown)?;
    let private = Owner { account: Some(account), mode: Mode::RWXU };
    let shown = directory_below(open_directory(&shown)?, place.job(), private)?;
    let hosts: String = order.hosts.iter().map(|host| format!("{host}\n")).collect();
    let readable = Owner { account: Some(account), mode: Mode::RUSR | Mode::WUSR };
    replace(&shown, HOSTS, hosts.as_bytes(), readable)?;
    let venv = order.venv.then(|| place.venv(account));
    replace(&shown, SCRIPT, script::text(&order.commands, venv.as_deref()).as_bytes(), readable)?;
    let directory = place.attempt(order.attempt);
    DirBuilder::new().mode(0o700).create(&directory)?;
    File::options().write(true).create_new(true).mode(0o600).open(directory.join(LOG))?;
    let own = Owner { account: None, mode: Mode::RUSR | Mode::WUSR };
    replace(open_directory(&directory)?, ORDER, &serde_json::to_vec(order)?, own)
}

/// Starts the supervisor.
fn begin(
    guest: &Arc<Guest>,
    place: &Place,
    account: &Account,
    job: &Arc<Job>,
    number: u32,
) -> io::Result<Arc<Attempt>> {
    let directory = place.attempt(number);
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // The kernel bounds what one user's pipes may hold; a smaller one does as well.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_SIZE);
    let (conversation, theirs) = Conversation::new()?;
    let mut command = Command::new(&guest.settings.helper);
    command.arg0("tarn-guest").arg("job-supervisor").arg(&directory).arg(&guest.settings.root);
    command.arg(&guest.settings.user).arg(if guest.settings.is_init { INSTANCE } else { "elsewhere" });
    command.env_clear().process_group(0);
    if let Some(image) = &guest.settings.image {
        command.env(Image::VARIABLE, serde_json::to_string(image)?);
    }
    command.stdin(theirs).stdout(write).stderr(read.try_clone()?);
    let conversation = Arc::new(conversation);
    let source = Source { pipe: read, conversation: conversation.clone() };
    let attempt = Arc::new(Attempt::open(directory, Stage::Starting, Some(source))?);
    let supervisor = Child::start(guest, &mut command)?;
    // The command holds the supervisor's ends: without them its death is noticed.
    drop(command);
    job.add(number, attempt.clone());
    let keeper = Keeper {
        guest: guest.clone(),
        job: job.clone(),
        number,
        attempt: attempt.clone(),
        conversation,
        supervisor,
        held: processes::may_be_held(account.uid, guest.settings.is_init),
    };
    tokio::spawn(keeper.run(place.job().to_owned()));
    Ok(attempt)
}
