//! What the host can hold: the capacity queue, GPUs, limits and the pool of volumes.

mod gpus;
mod limits;
mod line;
mod missing_gpus;
mod pool;
mod queue;
