//! Injected faults: what can go wrong around a step. Production uses [`Never`].

use tarn_model::requests::RequestType;

/// What goes wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It fails before it acts.
    ErrorBefore,
    /// It acts and then fails.
    ErrorAfter,
    /// It acts, and the runner dies before the commit.
    Crash,
    /// It acts twice.
    Twice,
    /// It acts, and the runner sees a timeout.
    TimeoutAfter,
    /// It fails permanently.
    Permanent,
}

/// The step that is about to run or to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    pub kind: RequestType,
    pub step: &'static str,
    /// Whether the step is being undone.
    pub undo: bool,
}

/// Decides which faults are injected.
pub trait Faults: Send + Sync + 'static {
    /// Is called before each try of each step.
    fn at(&self, at: FaultPoint) -> Fault;
}

/// Injects no faults.
pub struct Never;

impl Faults for Never {
    fn at(&self, _: FaultPoint) -> Fault {
        Fault::None
    }
}
