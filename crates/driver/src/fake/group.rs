//! Groups calls: calls that wait for the file at the same time change it together, with one lock, one write and one
//! sync for all of them. Each returns when the write is durable. A thousand clusters at once would otherwise be written
//! one by one.

use parking_lot::Mutex;
use std::mem;

use tokio::sync::oneshot;

use super::file::WorldFile;
use super::world::World;
use crate::Error;

/// The waiting calls, in their order.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Vec<Box<dyn Call>>>);

/// Calls that are made together.
pub(super) struct Group(Vec<Box<dyn Call>>);

impl Waiting {
    /// Adds a call. A call that fails must leave the world unchanged, because it shares it with the others of its
    /// group.
    pub(super) fn add<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Error>> {
        let (answer, answered) = oneshot::channel();
        self.calls().push(Box::new(Pending { work: Some(work), done: None, answer }));
        answered
    }

    /// Takes all waiting calls; `None` when another task has taken them.
    pub(super) fn take(&self) -> Option<Group> {
        let calls = mem::take(&mut *self.calls());
        (!calls.is_empty()).then_some(Group(calls))
    }

    fn calls(&self) -> parking_lot::MutexGuard<'_, Vec<Box<dyn Call>>> {
        self.0.lock()
    }
}

impl Group {
    /// Makes the calls and sends their results.
    pub(super) fn run(mut self, file: &WorldFile) {
        let written = file.change(|world| self.0.iter_mut().for_each(|call| call.apply(world)));
        self.0.into_iter().for_each(|call| call.answer(written.clone()));
    }
}

trait Call: Send {
    fn apply(&mut self, world: &mut World);
    fn answer(self: Box<Self>, written: Result<(), Error>);
}

struct Pending<T, W> {
    work: Option<W>,
    done: Option<Result<T, Error>>,
    answer: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, W: FnOnce(&mut World) -> Result<T, Error> + Send> Call for Pending<T, W> {
    /// A call whose caller gave up while it waited is not made: its effect could come after that of the caller's next
    /// call, from this process or another.
    fn apply(&mut self, world: &mut World) {
        if !self.answer.is_closed() {
            self.done = self.work.take().map(|work| work(world));
        }
    }

    fn answer(self: Box<Self>, written: Result<(), Error>) {
        let answer = match (written, self.done) {
            (Ok(()), Some(done)) => done,
            (Err(error), _) => Err(error),
            (Ok(()), None) => return,
        };
        // The caller may be gone; the effect stays, and the next try finds it.
        let _unheard = self.answer.send(answer);
    }
}
