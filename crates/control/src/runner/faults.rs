//! Misbehaviour on purpose: what can go wrong around a step. Production uses [`Never`].

use tarn_model::requests::RequestType;

/// What goes wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails before it did anything.
    ErrorBefore,
    /// It acts and then fails.
    ErrorAfter,
    /// It acts, and the runner dies before anything is committed.
    Crash,
    /// It acts twice.
    Twice,
    /// It acts, but the runner only hears that it took too long.
    TimeoutAfter,
    /// It fails for good.
    Permanent,
}

/// Where a runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    /// The kind of the request.
    pub kind: RequestType,
    /// The name of the step.
    pub step: &'static str,
    /// Whether the step is being undone.
    pub undo: bool,
}

/// Decides what goes wrong.
pub trait Faults: Send + Sync + 'static {
    /// Asked before each try of each step.
    fn at(&self, at: FaultPoint) -> Fault;
}

/// Nothing ever goes wrong on purpose.
pub struct Never;

impl Faults for Never {
    fn at(&self, _: FaultPoint) -> Fault {
        Fault::None
    }
}
